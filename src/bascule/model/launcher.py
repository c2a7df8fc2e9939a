"""Commands that fetch a server before they start it, and how long a start may take.

Below: the record. Above: the pool gives launchers more time, and says "fetching" of them.
"""

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
    words = [stdio.command, *stdio.args]
    while words and _name(words[0]) in _WRAPPERS:
        words = words[1:]
        while words and (words[0].startswith(("-", "/c", "/C")) or "=" in words[0]):
            words = words[1:]
    if not words:
        return False
    name = _name(words[0])
    as_module = name.startswith("python") and words[1:2] == ["-m"] and _MODULES & set(words[2:3])
    return name in _LAUNCHERS or bool(as_module)


def comes_with(command: str) -> str | None:
    """Return what to install for a command that is not there, where that is known."""
    return _COMES_WITH.get(_name(command))


def from_cache(argv: Sequence[str]) -> tuple[str, ...] | None:
    """Return how to start what was fetched before, asking nobody; None for other commands.

    The flag stands before all of the launcher's own words; what it starts does not see it.
    """
    if _name(argv[0]) not in _OFFLINE:
        return None
    return (argv[0], "--offline", *argv[1:])


def start_timeout(record: ServerRecord) -> float:
    """Return how long a start of this server may take, in seconds."""
    budgets = record.budgets
    limit = budgets.start_timeout_ms
    if limit is None:
        limit = budgets.connect_timeout_ms
        if record.stdio is not None and fetches(record.stdio):
            limit = max(limit, FETCH_TIMEOUT_MS)
    return limit / 1000


def _name(command: str) -> str:
    """Return the bare name of a program."""
    name = command.replace("\\", "/").rpartition("/")[2].lower()
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name
