"""The parser of the ``bascule`` command and its exit codes.

Exit codes: 0 done, 1 the work failed, 2 wrong usage, 10 refused by policy.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Container, Mapping, Sequence
from importlib import import_module

from bascule import __version__
from bascule.cli.parser import EXIT_FAILED, EXIT_REFUSED, Parser, Run
from bascule.errors import BasculeError, SessionRefused

#: Each command is a module of its own name beside this one, with a function ``fill(parser)``.
COMMANDS: Mapping[str, str] = {
    "up": "serve the registry, its API and a node in one process",
    "registry": "serve a registry without a node; copy, back up and restore one",
    "node": "serve tools for a control plane elsewhere; how such a node stands",
    "nodes": "the nodes of a running registry, and what each of them serves",
    "servers": "the servers of a running registry, and its history",
    "tasks": "the tasks of a running registry",
    "profiles": "the profiles of a running registry",
    "backends": "the model backends of a running registry",
    "users": "the people of a running registry, and who may use a tool",
    "rescan": "make a running process load its record files now",
    "web": "a link to the admin page, or a code that it asks for",
    "tokens": "create, list and revoke the tokens of a data directory",
    "secrets": "set, bind, list and remove the secrets of a data directory",
    "approvals": "what waits for a person: list, show, approve, deny, watch, wait, hook-key",
    "audit": "what happened: search, follow, verify and export the ledger",
    "tools": "list, call and explain tools: of a running process, or of record files",
    "chat": "chat with a model of a running process, with the tools of a task",
    "run": "run a WASM program under a task, with its tools and models",
    "agents": "the MCP servers of agents, in a running process or in their file",
    "doctor": "is the process well, or each server of some records; how to fix it",
    "preflight": "can this machine serve: its disk, ports, keys and database; how to mend it",
    "policy": "explain what policy allows",
    "tour": "a short tour with the bundled demo server",
}
#: Commands that take another command's words after ``--``, as they are.
_WITH_COMMAND = frozenset({("servers", "add"), ("agents", "add"), ("agents", "update")})


def build_parser(wanted: Container[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser; only the wanted commands know their options."""
    parser = Parser(
        prog="bascule",
        description="The governed bridge between agents and MCP tools.",
        epilog="Help for each command: bascule COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"bascule {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name in wanted:
            import_module(f"bascule.cli.{name}").fill(command)
    return parser


def run(argv: Sequence[str], *, loaded: Callable[[], None] = lambda: None) -> int:
    """Run one command and return its exit code; ``loaded`` is called when its modules are there."""
    if not argv:
        return _say_what_there_is()
    arguments = _parse(argv)
    loaded()
    command: Run = arguments.run
    try:
        return command(arguments)
    except SessionRefused as error:
        return _refused(error, as_json=arguments.json)
    except BasculeError as error:
        from bascule.cli.failures import report  # noqa: PLC0415 - --help does without

        return report(error, as_json=arguments.json, arguments=arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILED


def _say_what_there_is() -> int:
    """Print a short help, for whoever typed the name alone."""
    from bascule.cli.command_line import program  # noqa: PLC0415 - as above

    name = program()
    commands = textwrap.fill(f"Commands: {', '.join(COMMANDS)}.", 80)
    print(
        "Bascule, the governed bridge between agents and MCP tools.\n\n"
        f"  {name} up            # serve, with a demo to try\n"
        f"  {name} tools list    # what may be used; in another terminal\n"
        f"  {name} tour          # a short walk without serving\n\n"
        f"{commands}\n"
        f"{name} --help says what each is for."
    )
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the words; argparse itself loses a command that stands behind options."""
    parser = build_parser(argv[:1])
    if tuple(argv[:2]) not in _WITH_COMMAND or "--" not in argv:
        return _parsed(parser, argv)
    end = argv.index("--")
    arguments = _parsed(parser, argv[:end])
    arguments.rest = argv[end + 1 :]
    return arguments


def _parsed(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Read words; what is left over is told by the command it was given to, which knows better."""
    arguments, left = parser.parse_known_args(argv)
    if left:
        vars(arguments).get("usage", parser.error)(f"unrecognized arguments: {' '.join(left)}")
    return arguments


def _refused(error: SessionRefused, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"refused": {"reason": error.reason, "message": str(error)}}))
    print(f"refused ({error.reason}): {error}", file=sys.stderr)
    return EXIT_REFUSED
