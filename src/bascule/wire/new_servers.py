"""What a record says that is made anew, and one that exists does not: its sharing and its sandbox.

A record without these fields means what it always meant, so no default of theirs can change. What
makes a record (the commands, the import, the page) writes them down instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.sandbox import OWN_CWD, Level, Sandbox
from bascule.model.server import Sharing

NEW_SHARING: Sharing = "task"
NEW_SANDBOX = Sandbox(level="best", network="full")
#: Levels of a sandbox that keep no file from a server.
KEEP_NO_FILES: frozenset[Level] = frozenset({"none", "limits"})
#: A word of a command line that is, or after ``=`` has, an absolute path.
_PATH = re.compile(r"(?:--?[\w-]+=)?((?:/|~/)[^\s:]*)")
#: Paths that name a place to look things up in, not one to work in.
_TOO_WIDE = frozenset({"/", "~/", "/dev", "/proc", "/sys", "/etc", "/usr", "/bin", "/home"})


def new_server(record: JsonObject) -> dict[str, JsonValue]:
    """Return a record with what is written into new ones, unless it says otherwise."""
    fresh: dict[str, JsonValue] = {"sharing": NEW_SHARING}
    if record.get("transport") == "stdio":
        fresh["sandbox"] = {"level": NEW_SANDBOX.level, "network": NEW_SANDBOX.network}
    return {**fresh, **record}


def named_places(record: JsonObject) -> list[str]:
    """Return the absolute paths among a local server's arguments, which it may want to use."""
    stdio = record.get("stdio")
    args = stdio.get("args") if is_object(stdio) else ()
    words = [word for word in args if isinstance(word, str)] if is_array(args) else []
    found = [match[1].rstrip("/") or "/" for word in words if (match := _PATH.fullmatch(word))]
    return [place for place in dict.fromkeys(found) if place not in _TOO_WIDE]


def ungranted_places(record: JsonObject) -> list[str]:
    """Return the paths that a local server's arguments name and its sandbox keeps from it."""
    table = record.get("sandbox")
    sandbox: JsonObject = table if is_object(table) else {}
    if sandbox.get("level") in KEEP_NO_FILES:
        return []
    lists = [sandbox.get(name) for name in ("read", "write")]
    granted = {str(place) for places in lists if is_array(places) for place in places}
    return [place for place in named_places(record) if place not in granted]


def granting(record: JsonObject, places: Sequence[str]) -> dict[str, JsonValue]:
    """Return a record whose sandbox lets its server write to some places more."""
    table = record.get("sandbox")
    sandbox: JsonObject = table if is_object(table) else {}
    write = sandbox.get("write", [OWN_CWD])
    before = list(write) if is_array(write) else [OWN_CWD]
    more = [place for place in places if place not in before]
    return {**record, "sandbox": {**sandbox, "write": [*before, *more]}} if more else {**record}
