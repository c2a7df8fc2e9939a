"""``bascule tasks invoke``: have a node run a task's module, and show what it says."""

from __future__ import annotations

import argparse
from contextlib import aclosing

from msgspec import to_builtins

from bascule.cli.command import print_line, run_async
from bascule.cli.endpoint import reach
from bascule.cli.failures import complain, report
from bascule.cli.guest_output import EXIT_INTERRUPTED, GuestOutput, exit_code
from bascule.cli.parser import EXIT_USAGE
from bascule.client.guests import GuestsClient, GuestWritten
from bascule.client.http import ApiError
from bascule.doors.hostcalls.host import LogLine, Output
from bascule.wire.api.guests import GuestExit, GuestLog, Invocation

#: The token that is made for the command lives as long as the longest guest.
_TOKEN_SECONDS = 86_400.0
_NO_MODULE = frozenset({"bad_module", "invalid_record", "no_engine", "wrong_state"})


def invoke_task(arguments: argparse.Namespace) -> int:
    """Run a task's module on its node; return its exit code."""
    try:
        found = run_async(_heard(arguments))
    except ApiError as error:
        code = report(error, as_json=arguments.json, arguments=arguments)
        return EXIT_USAGE if error.code in _NO_MODULE else code
    except KeyboardInterrupt:
        complain(["the guest was interrupted"])
        return EXIT_INTERRUPTED
    code = exit_code(found.reason, found.code)
    if found.reason != "exited":
        complain([f"the guest ended: {found.reason}" + (found.message and f": {found.message}")])
    if arguments.json:
        print_line(arguments, {"exit": code, **to_builtins(found)}, "")
    return code


async def _heard(arguments: argparse.Namespace) -> GuestExit:
    """Show what the guest says as it comes; return how it ended."""
    timeout: float | None = arguments.timeout
    added = Invocation(
        args=tuple(arguments.arg),
        env=dict(arguments.env),
        model=arguments.model,
        timeout_ms=None if timeout is None else max(1, round(timeout * 1000)),
    )
    output = GuestOutput()
    async with (
        reach(arguments, "client", arguments.id, seconds=_TOKEN_SECONDS) as found,
        found.api() as api,
        aclosing(GuestsClient(api).invoke(arguments.id, added)) as stream,
    ):
        async for said in stream:
            if isinstance(said, GuestExit):
                if arguments.json:
                    output.end_line()
                return said
            output.hear(_as_said(said))
            if output.broken:
                raise BrokenPipeError
    raise AssertionError("a stream without an exit is an error")


def _as_said(said: GuestLog | GuestWritten) -> Output | LogLine:
    if isinstance(said, GuestLog):
        return LogLine(said.level, said.text)
    return Output(said.stream, said.data)
