"""The client that the official conformance suite tests: the real bridge, and an agent on it.

The suite runs ``python client.py <url>`` with the scenario's name in the environment. The agent
lists the tools and calls each one (or the calls that the scenario wants), answers what servers ask,
and signs in where it must. It exits 0 only when everything ended as it should: in the scenarios of
``MUST_REFUSE``, only when the bridge would have nothing to do with the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from bascule.audit.ledger import MemoryLedger
from bascule.audit.metrics import Metrics
from bascule.model.server import ServerRecord
from bascule.node.assembly import Bridge, read_records
from bascule.node.bridge.session import Session
from bascule.node.pool import client
from bascule.node.pool.opener import Opener
from bascule.node.pool.pool import Pool
from bascule.node.pool.process.warden import default_spawner
from bascule.node.pool.transport.channel import Channel, Events
from bascule.node.pool.transport.http import HttpChannel
from bascule.node.pool.transport.upstream import Upstream
from bascule.node.settings import NodeSettings
from bascule.node.sharing import ALL, Sharer
from bascule.outbound.credentials import Credentials
from bascule.outbound.egress import EgressRules
from bascule.outbound.http import HttpClient, HttpOptions
from bascule.outbound.url import Url
from bascule.server import Server

SECONDS = 20.0
# Forty scenarios share a machine, and their servers may be slow to answer the first question. When
# both ways of greeting are tried because of a silence is not what the suite is about.
client.PROBE_SECONDS = SECONDS
#: Makes the credential for a URL.
SignIn: TypeAlias = Callable[[str], Credentials]
MUST_REFUSE = frozenset(
    {
        "auth/iss-normalized",
        "auth/iss-supported-missing",
        "auth/iss-unexpected",
        "auth/iss-wrong-issuer",
        "auth/metadata-issuer-mismatch",
        "auth/resource-mismatch",
        "auth/scope-retry-limit",
    }
)


class Person:
    """Answers what servers ask, as somebody would who presses Enter every time."""

    capabilities: Mapping[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}

    async def provide(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Accept the defaults of a form; sampling and roots get the shortest answer there is."""
        if method == "elicitation/create":
            return {"action": "accept", "content": defaults(params.get("requestedSchema", {}))}
        if method == "roots/list":
            return {"roots": []}
        said = {"type": "text", "text": "yes"}
        return {"role": "assistant", "content": said, "model": "none", "stopReason": "endTurn"}


def defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default of each field; one without a default is a yes if it can be one."""
    fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    filled = {name: field["default"] for name, field in fields.items() if "default" in field}
    yes = {name: True for name, field in fields.items() if field.get("type") == "boolean"}
    return yes | filled


def arguments_for(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that a schema accepts: all that are required, and nothing else."""
    examples = {"string": "text", "boolean": True, "array": [], "object": {}}
    fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    return {
        name: examples.get(fields.get(name, {}).get("type", ""), 5)
        for name in schema.get("required", [])
    }


def without_nulls(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is null: the bridge checks arguments, and null is no boolean."""
    return {name: value for name, value in arguments.items() if value is not None}


async def try_everything(session: Session, wanted: list[dict[str, Any]]) -> list[str]:
    """List, and make the wanted calls or else one of every tool; return what went wrong."""
    tools = await session.tools()
    troubles = [warning for warning in tools.warnings if "quarantined" not in warning]
    by_name = {tool.name: tool.model_name for tool in tools}
    calls = [(call["name"], without_nulls(call["arguments"])) for call in wanted] or [
        (tool.name, arguments_for(tool.input_schema)) for tool in tools
    ]
    outcomes = await asyncio.gather(
        *(session.call(by_name[name], arguments) for name, arguments in calls)
    )
    return troubles + [str(outcome.error) for outcome in outcomes if outcome.error is not None]


class SigningOpener(Opener):
    """Opens channels with a credential for which a person signs in."""

    def __init__(self, sign_in: SignIn) -> None:
        super().__init__(default_spawner())
        self._sign_in = sign_in

    async def open(self, record: ServerRecord, events: Events, sharer: Sharer = ALL) -> Channel:
        """Open a channel over streamable HTTP."""
        del sharer
        assert record.http is not None
        url = record.http.url
        client = HttpClient(HttpOptions(connect_seconds=5.0, egress=EgressRules(())))
        credentials = self._sign_in(url)
        return HttpChannel(
            Upstream(client, Url.parse(url), headers={}, credentials=credentials), events
        )


def joined(url: str, sign_in: SignIn | None) -> Bridge:
    """Return the bridge as ``Bridge.open`` makes it, with a way to sign in if need be."""
    settings, metrics = NodeSettings(), Metrics()
    opener = Opener(default_spawner()) if sign_in is None else SigningOpener(sign_in)
    return Bridge(
        read_records([Server.http("suite", url)]),
        Pool(opener, settings=settings, metrics=metrics),
        MemoryLedger(),
        metrics,
        settings=settings,
    )


async def run(url: str, scenario: str, context: Mapping[str, Any]) -> list[str]:
    """Play one scenario; return what went wrong."""
    sign_in = None
    if scenario.startswith("auth/"):
        from tests.conformance.visitor import visitor  # the SDK takes half a second to load

        sign_in = visitor(context)
    async with (
        asyncio.timeout(SECONDS),
        joined(url, sign_in) as bridge,
        bridge.session(server_ids=["suite"], inputs=Person()) as session,
    ):
        troubles = await try_everything(session, context.get("toolCalls", []))
    if scenario not in MUST_REFUSE:
        return troubles
    return [] if troubles else ["the bridge took what it had to refuse"]


def main() -> int:
    """Run as the suite wants it."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    troubles = asyncio.run(run(sys.argv[1], os.environ["MCP_CONFORMANCE_SCENARIO"], context))
    sys.stderr.writelines(f"{trouble}\n" for trouble in troubles)
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
