"""The node's list of executables: what an entry admits, and what a record may not bring along.

An entry without a space is a program with any arguments but inline code. With spaces it is the
whole line: ``*`` is one argument, ``**`` the rest, and inline code must be written out in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bascule.errors import LaunchDenied
from bascule.model.code_variables import loads_code
from bascule.model.reference import Variable, parse_template
from bascule.node.inline_code import inline_code
from bascule.outbound.references import permit
from bascule.outbound.rules import NodeRules, covers, covers_program

ANY_ARGUMENT = "*"
THE_REST = "**"
#: Programs that fetch and run whichever package they are told to.
_RUNNERS = {
    "uvx": "uvx mcp-server-time *",
    "uv": "uv run --directory /srv/server server *",
    "pipx": "pipx run mcp-server-time *",
    "npx": "npx -y @modelcontextprotocol/server-memory *",
    "bunx": "bunx @modelcontextprotocol/server-memory *",
    "pnpx": "pnpx @modelcontextprotocol/server-memory *",
    "npm": "npm exec -y @modelcontextprotocol/server-memory",
    "pnpm": "pnpm dlx @modelcontextprotocol/server-memory *",
    "yarn": "yarn dlx @modelcontextprotocol/server-memory *",
    "bun": "bun /srv/server/index.ts *",
    "deno": "deno run --allow-net /srv/server/main.ts *",
    "nix": "nix run nixpkgs#mcp-server *",
    "mise": "mise exec -- server *",
    "docker": "docker run -i --rm mcp/time *",
    "podman": "podman run -i --rm mcp/time *",
}
#: Programs that start whichever program they are told to.
_STARTERS = frozenset(
    {
        "env", "nice", "ionice", "timeout", "xargs", "nohup", "setsid", "stdbuf", "sudo", "doas",
        "busybox", "toybox", "chroot", "unshare", "strace", "time", "flock", "script", "find",
    }
)  # fmt: skip


class Line(Struct, frozen=True):
    """What is to be started. ``name`` is set where the node's own PATH led to the program."""

    program: str
    name: str | None
    args: tuple[str, ...]
    cwd: str | None = None

    def names(self) -> tuple[str, ...]:
        """Return what the program is called here, and what it is really called."""
        return self.program, str(Path(self.program).resolve())


def refuse_unlisted(rules: NodeRules, line: Line) -> None:
    """Raise LaunchDenied unless an entry admits the line."""
    entries = rules.listed_executables()
    if entries is None:
        return
    known = [entry for entry in map(_words, entries) if _names_program(entry, line)]
    if not known:
        raise LaunchDenied(
            f"stdio.command: this node does not start {line.program}; "
            + permit("executable", _entry(line.program))
        )
    _refuse_given_folder(line)
    found = inline_code(line.names(), line.args)
    bare = [entry for entry in known if not entry.whole]
    if bare and not found:
        return
    if any(_admits(entry.args, line, found) for entry in known if entry.whole):
        _refuse_folder(rules, line)
    elif bare:
        _refuse_inline(line, found[0])
    else:
        raise LaunchDenied(
            f"stdio.args: this node starts {line.program} with other arguments only; add the whole "
            "line to [node] executables, with * for one argument and ** for the rest"
        )


class _Entry(Struct, frozen=True):
    """An entry taken apart; ``whole`` says that it is a whole line."""

    program: str
    args: tuple[str, ...]
    whole: bool


def _words(text: str) -> _Entry:
    try:
        words = shlex.split(text)
    except ValueError:  # an apostrophe in a path
        words = text.split()
    return _Entry("".join(words[:1]), tuple(words[1:]), len(text.split()) > 1)


def _names_program(entry: _Entry, line: Line) -> bool:
    return covers_program(entry.program, line.program, line.name)


def _admits(pattern: Sequence[str], line: Line, found: Iterable[int]) -> bool:
    """Say whether a whole line is one of the pattern's, and has no code but the pattern's own."""
    fixed = pattern[: pattern.index(THE_REST)] if THE_REST in pattern else pattern
    own = [index < len(fixed) and fixed[index] == line.args[index] for index in found]
    return all(own) and _fits(pattern, line.args)


def _fits(pattern: Sequence[str], args: Sequence[str]) -> bool:
    if not pattern:
        return not args
    if pattern[0] == THE_REST:
        return any(_fits(pattern[1:], args[start:]) for start in range(len(args) + 1))
    return bool(args) and covers((pattern[0],), args[0]) and _fits(pattern[1:], args[1:])


def _refuse_folder(rules: NodeRules, line: Line) -> None:
    """Raise where a record chooses the folder: programs load modules and settings from there."""
    if line.cwd is not None and not rules.allows_file(str(Path(line.cwd).resolve())):
        raise LaunchDenied(
            f"stdio.cwd: a program of a whole line is not started in a folder of the record's "
            f"choice; {permit('file', str(Path(line.cwd).resolve()))}"
        )


def _refuse_given_folder(line: Line) -> None:
    """Raise where what a process was given are files: its variables would be a script there."""
    folder = None if line.cwd is None else Path(line.cwd).resolve()
    if folder is not None and any(folder.is_relative_to(place) for place in ("/proc", "/dev")):
        raise LaunchDenied(f"stdio.cwd: no listed program is started in {folder}")


def _refuse_inline(line: Line, index: int) -> None:
    option = line.args[index].partition("=")[0]
    what = option if option.startswith("--") else option[:2]
    raise LaunchDenied(
        f"stdio.args[{index}]: {what!r} gives {line.program} its code in the command line, and "
        "[node] executables lists the program, not this line; put the code into a file, or add "
        "the whole line to [node] executables"
    )


def _entry(program: str) -> str:
    """Return the entry for a program with any arguments."""
    return f"{shlex.quote(program)} {THE_REST}" if " " in program else program


def refuse_code_variables(rules: NodeRules, environment: Mapping[str, str]) -> None:
    """Raise where a record would put other code into a listed program.

    ``environment`` has the values as the record writes them: the node's own value of the same
    variable is the operator's choice. A variable is let through by its own name in ``variables``.
    """
    if rules.listed_executables() is None:
        return
    listed = rules.variables or ()
    found = sorted(
        name
        for name, text in environment.items()
        if loads_code(name) and name not in listed and not _is_the_nodes_own(name, text)
    )
    if found:
        raise LaunchDenied(
            f"stdio.env: {', '.join(found)} would load other code into an allowed program, and "
            "this node starts listed programs only; remove it from the record, or "
            + permit("variable", found[0])
        )


def _is_the_nodes_own(name: str, text: str) -> bool:
    try:
        return parse_template(text).parts == (Variable(name),)
    except ValueError:
        return False


def wide_entries(rules: NodeRules) -> list[str]:
    """Say which entries admit any package or image, and how to name one."""
    found: list[str] = []
    for entry in rules.executables or ():
        name = entry.rpartition("/")[2]
        if name in _RUNNERS:
            found.append(
                f"[node] executables: {entry!r} admits any package, so whoever writes records "
                f"chooses what runs; name one: {_RUNNERS[name]!r}"
            )
        elif name in _STARTERS:
            found.append(
                f"[node] executables: {entry!r} starts any program it is told to, listed or not; "
                f"write the whole line: '{entry} server *'"
            )
        elif entry in (ANY_ARGUMENT, f"*/{ANY_ARGUMENT}", "/*"):
            found.append(f"[node] executables: {entry!r} admits any program")
    return found
