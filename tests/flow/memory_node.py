"""A node in a process of its own that meets one fault and tells what it cost: ``STEP`` as JSON.

It prints one line: the code of the fault's outcome, the code of a call afterwards, and by how much
the resident memory grew at its peak, in bytes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from bascule.node.assembly import Bridge
from bascule.node.bridge.session import Session
from tests.flow.servers import PATIENT, any_fault, code_of, misbehave, record, works_soon


def memory(field: str) -> int:
    """Return a line of the process's own status, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


async def measured(session: Session, step: dict[str, Any]) -> dict[str, Any]:
    """Meet the fault; the server has shown itself well before."""
    await works_soon(session)
    before = memory("VmRSS")
    outcome = await misbehave(session, step, timeout=5.0)
    await works_soon(session)
    return {"code": code_of(outcome), "text": outcome.text, "grown": memory("VmHWM") - before}


async def main(step: dict[str, Any]) -> None:
    """Run the bridge, the fault and the call after it."""
    async with (
        Bridge.open([record(any_fault())], settings=PATIENT) as bridge,
        bridge.session(server_ids=["bad"]) as session,
    ):
        print(json.dumps(await measured(session, step)))  # noqa: T201 - this is the answer


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
