"""``bascule run``: run a WASM program under a task; it calls models and tools."""

from __future__ import annotations

import argparse

from bascule.cli.command import SESSION_OPTIONS
from bascule.cli.endpoint import api_options
from bascule.cli.failures import report
from bascule.cli.parser import EXIT_USAGE, Parser, declared, many, option
from bascule.cli.tool_approval import APPROVING
from bascule.cli.values import count, pair, seconds
from bascule.errors import BasculeError

_ENGINE = "wasmtime"
_EXAMPLES = """\
examples:
  bascule run guest.wasm --model rehearsal
  bascule run guest.wasm --task demo --registry-dir mcp.d
  bascule run guest.wasm --task demo --arg Paris --env LEVEL=high --timeout 60
  bascule run --task nightly --url http://127.0.0.1:7070

Without --registry-dir, --task and --url there is no task: chat works with the built-in script
rehearsal, MCP is off. With --registry-dir the command opens its own bridge; otherwise the session
belongs to a task of a running process, and so do the models. Without GUEST the task's executable is
run. The guest's standard output goes to standard output, its errors and its log to standard error.
Exit codes: the guest's own; 1 it failed or trapped, 2 wrong usage or no module that can be run,
10 refused by policy, 124 out of time, 130 interrupted.
"""


class NoEngine(BasculeError):
    """The engine of WASM programs is not installed."""

    code = "no_engine"


def fill(parser: Parser) -> None:
    """Add the options of ``run``."""
    declared(
        parser,
        run,
        option("guest", "GUEST", "the module, a .wasm file (the task's executable)", nargs="?"),
        *(*SESSION_OPTIONS, *api_options(), APPROVING),
        option("--model", "NAME", "ask this model, whichever the guest asks for"),
        many("--arg", "TEXT", "an argument for the guest; may be repeated"),
        many("--env", "KEY=VALUE", "a variable for the guest; may be repeated", type=pair),
        option("--timeout", "SECONDS", "end the guest after this", type=seconds),
        option("--memory", "MIB", "the most memory it may have (64)", type=count, default=64),
        option("--output-limit", "BYTES", "the most it may write and log (16 MiB)", type=count),
        option("--fuel", "N", "how many instructions it may run, more or less", type=count),
        epilog=_EXAMPLES,
    )


def run(arguments: argparse.Namespace) -> int:
    """Run a guest; the engine is imported now, and no other command needs it."""
    try:
        from bascule.cli.guest_run import run_guest  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _ENGINE:
            raise
        missing = NoEngine("guests need the engine wasmtime: pip install 'bascule[wasm]'")
        report(missing, as_json=arguments.json)
        return EXIT_USAGE
    return run_guest(arguments)
