"""Commands that fetch a server before they start it, and how long a start may take."""

from __future__ import annotations

from collections.abc import Sequence

from bascule.model.server import ServerRecord, Stdio

#: How long a launcher that fetches may take when its record does not say.
FETCH_TIMEOUT_MS = 120_000

_LAUNCHERS = frozenset(
    {
        "uvx", "uv", "pipx", "pip-run", "pixi", "conda", "mamba",
        "npx", "npm", "pnpx", "pnpm", "yarn", "bunx", "bun", "deno",
        "docker", "podman", "nerdctl",
        "dnx", "dotnet", "go", "cargo", "jbang", "mise", "nix", "nix-shell",
    }
)  # fmt: skip
_OFFLINE = frozenset({"uvx", "uv", "npx", "npm"})  # the others look into their cache first anyway
_MODULES = frozenset({"uv", "pipx"})  # python -m uv
_WRAPPERS = frozenset({"env", "nice", "cmd"})
_COMES_WITH = {
    **dict.fromkeys(("uv", "uvx"), "uv (pip install uv)"),
    **dict.fromkeys(("node", "npm", "npx"), "Node.js"),
    "pipx": "pipx (pip install pipx)",
    **dict.fromkeys(("bun", "bunx"), "Bun"),
    "deno": "Deno",
    "docker": "Docker",
}
_SUFFIXES = (".exe", ".cmd", ".bat", ".ps1")


def fetches(stdio: Stdio) -> bool:
    """Say whether a command is a launcher, which may have to fetch what it starts."""
    return launcher_place([stdio.command, *stdio.args]) is not None


def comes_with(command: str) -> str | None:
    """Return what to install for a command that is not there, where that is known."""
    return _COMES_WITH.get(program_name(command))


def from_cache(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return how to start what was fetched before, asking nobody; None for other commands.

    The flag stands before all of the launcher's own words; what it starts does not see it.
    """
    place = launcher_place(argv)
    if place is None or program_name(argv[place]) not in _OFFLINE:
        return None
    return (*argv[: place + 1], "--offline", *argv[place + 1 :])


def launcher_place(words: Sequence[str]) -> int | None:
    """Return where in a command line a launcher stands, behind what it may be wrapped in."""
    at = 0
    while at < len(words) and program_name(words[at]) in _WRAPPERS:
        at += 1
        while at < len(words) and (words[at].startswith(("-", "/c", "/C")) or "=" in words[at]):
            at += 1
    names = [program_name(word) for word in words[at : at + 3]]
    if names and names[0] in _LAUNCHERS:
        return at
    as_module = len(names) == 3 and names[0].startswith("python") and names[1] == "-m"
    return at + 2 if as_module and names[2] in _MODULES else None


def start_timeout(record: ServerRecord) -> float:
    """Return how long a start of this server may take, in seconds."""
    budgets = record.budgets
    limit = budgets.start_timeout_ms
    if limit is None:
        limit = budgets.connect_timeout_ms
        if record.stdio is not None and fetches(record.stdio):
            limit = max(limit, FETCH_TIMEOUT_MS)
    return limit / 1000


def program_name(command: str) -> str:
    """Return the bare name of a program."""
    name = command.replace("\\", "/").rpartition("/")[2].lower()
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name
