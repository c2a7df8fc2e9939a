"""``bascule servers allow`` and ``deny``: one pattern more or less, the others as they are.

What is denied is denied when the command has ended: where another allowed pattern still covers
it, the platform's denylist gets it, by server and pattern. ``allow`` takes such an entry away
again. Below: ``editing.py``. Above: ``servers``.
"""

from __future__ import annotations

import argparse
from typing import Any

from msgspec import Struct

from bascule.cli.command import print_json, shown, warn
from bascule.cli.edit import edit, words_of
from bascule.cli.endpoint import ask
from bascule.cli.next_steps import print_steps, steps_for
from bascule.cli.records import add_expected, verb
from bascule.client.registry import Plain, RegistryClient, Written
from bascule.model.coverage import covers, overlaps
from bascule.model.snapshot import Kind

PLATFORM: Kind = "platform"
_ALLOW_EXAMPLES = """\
  bascule servers allow time 'get_*'
  bascule servers allow notes delete_note
"""
_DENY_EXAMPLES = """\
  bascule servers deny notes delete_note
  bascule servers deny files 'write_*' 'delete_*'

Where another allowed pattern still covers it ('*' covers everything), it is put on the platform's
denylist.
"""


class _Edited(Struct):
    """What a command came to: the server, what to say about it, and what to do next."""

    written: Written
    warnings: list[str]
    steps: list[str]
    #: What allowed patterns cover, and the platform's denylist denies all the same.
    but_not: list[str] = []


def add_allowing_verbs(actions: Any) -> None:
    """Add ``allow`` and ``deny``."""
    for name, summary, run, examples in (
        ("allow", "let tools of a server be called", allow, _ALLOW_EXAMPLES),
        ("deny", "let tools of a server be called no longer", deny, _DENY_EXAMPLES),
    ):
        parser = verb(actions, name, summary, run, examples=examples)
        parser.add_argument("id", metavar="ID", help="the server")
        parser.add_argument("patterns", metavar="PATTERN", nargs="+", help="tools, with * and ?")
        add_expected(parser)


def allow(arguments: argparse.Namespace) -> int:
    """Add patterns to what a server allows."""
    return _say(arguments, ask(arguments, lambda registry: _allow(registry, arguments)))


def deny(arguments: argparse.Namespace) -> int:
    """Take patterns away from what a server allows."""
    return _say(arguments, ask(arguments, lambda registry: _deny(registry, arguments)))


async def _allow(registry: RegistryClient, arguments: argparse.Namespace) -> _Edited:
    wanted = _patterns(arguments)

    def change(record: Plain) -> Plain | None:
        allowed = words_of(record.get("allowed_tools"))
        more = [pattern for pattern in wanted if pattern not in allowed]
        return {"allowed_tools": [*allowed, *more]} if more else None

    written = await _edited(registry, arguments, change)
    denied = await _off_the_denylist(registry, arguments.id, wanted)
    warnings = [
        f"{pattern}: the platform's denylist still denies some of it ({entry})"
        for entry in denied
        for pattern in wanted
        if _is_about(entry, arguments.id, pattern)
    ]
    return _Edited(written, warnings, await steps_for(registry, [arguments.id], arguments))


async def _deny(registry: RegistryClient, arguments: argparse.Namespace) -> _Edited:
    dotted = [pattern for pattern in arguments.patterns if pattern.startswith(f"{arguments.id}.")]
    unwanted = [*_patterns(arguments), *dotted]  # which of the two is meant, its server knows

    def change(record: Plain) -> Plain | None:
        allowed = words_of(record.get("allowed_tools"))
        kept = [one for one in allowed if not any(covers(w, _bare(one)) for w in unwanted)]
        return {"allowed_tools": kept} if kept != allowed else None

    written = await _edited(registry, arguments, change)
    left = words_of(written.record.get("allowed_tools"))
    covered = {w: [one for one in left if overlaps(w, _bare(one))] for w in unwanted}
    listed = [f"{arguments.id}/{pattern}" for pattern, others in covered.items() if others]
    warnings = [
        f"{pattern} is on the platform's denylist now: allowed_tools still cover it "
        f"({', '.join(others)})"
        for pattern, others in covered.items()
        if others
    ]
    if listed:
        await _on_the_denylist(registry, listed)
    return _Edited(
        written, warnings, [], [pattern for pattern, others in covered.items() if others]
    )


async def _edited(registry: RegistryClient, arguments: argparse.Namespace, change: Any) -> Written:
    return await edit(
        registry,
        "server",
        arguments.id,
        change,
        expected_revision=arguments.expected_revision,
    )


async def _on_the_denylist(registry: RegistryClient, entries: list[str]) -> None:
    def change(record: Plain) -> Plain | None:
        present = words_of(record.get("tool_denylist"))
        more = [entry for entry in entries if entry not in present]
        return {"tool_denylist": [*present, *more]} if more else None

    await edit(registry, PLATFORM, PLATFORM, change)


async def _off_the_denylist(
    registry: RegistryClient, server: str, patterns: list[str]
) -> list[str]:
    """Take this server's entries for these patterns away; return what stays on the list."""
    named = {f"{server}/{pattern}" for pattern in patterns}

    def change(record: Plain) -> Plain | None:
        present = words_of(record.get("tool_denylist"))
        kept = [entry for entry in present if entry not in named]
        return {"tool_denylist": kept} if kept != present else None

    record = (await edit(registry, PLATFORM, PLATFORM, change)).record
    return words_of(record.get("tool_denylist"))


def _patterns(arguments: argparse.Namespace) -> list[str]:
    """Return the patterns without the server's own name before them, each once."""
    given: list[str] = arguments.patterns
    return list(dict.fromkeys(_own(pattern, arguments.id) for pattern in given))


def _own(pattern: str, server: str) -> str:
    """Return a pattern as a record has it, whichever way the tool was spelled.

    A tool that has its server's name and a dot in its own is meant by ``time/time.get``.
    """
    for prefix in (f"{server}/", f"mcp__{server}__", f"mcp.{server}.", f"{server}."):
        if pattern.startswith(prefix) and pattern != prefix:
            return pattern.removeprefix(prefix)
    return pattern


def _bare(pattern: str) -> str:
    return pattern.rpartition("/")[2]


def _is_about(entry: str, server: str, pattern: str) -> bool:
    owner, slash, glob = entry.partition("/")
    return (not slash or owner == server) and overlaps(glob if slash else entry, pattern)


def _say(arguments: argparse.Namespace, edited: _Edited) -> int:
    written = edited.written
    warnings = [*written.warnings, *edited.warnings]
    if arguments.json:
        server = {"revision": written.revision, "server": written.record}
        print_json({**server, "warnings": warnings})
    else:
        allowed = shown(", ".join(words_of(written.record.get("allowed_tools")))) or "nothing"
        but = f", but not {shown(', '.join(edited.but_not))}" if edited.but_not else ""
        print(f"server {arguments.id} allows {allowed}{but} (revision {written.revision})")
        warn(warnings)
    print_steps(edited.steps)
    return 0
