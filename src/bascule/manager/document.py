"""A TOML file of agents as text that is edited in place, with its comments and its order.

A comment after a blank line belongs to the heading below it, not to the table above: it stays
where it is when that table grows or goes. What an edit makes is read again before it counts, so
that a slip of the editor can never change what the rest of the file says.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import tomlkit
from msgspec import Struct
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, Comment, InlineTable, Item, Null, Table, Whitespace

from bascule.errors import BasculeError
from bascule.manager.config import DEFAULTS
from bascule.model.json import JsonObject, JsonValue, is_array, is_object

Entry = JsonObject
Plain: TypeAlias = dict[str, Any]
#: A table, a list of them, or a value: the types of ``tomlkit`` do not say which a key holds.
Node: TypeAlias = Any
Lines = list[str]
_made: Node = tomlkit.item  # its overloads leave the type of plain values unknown


class EditRefused(BasculeError):
    """The file is written in a way that cannot be edited without risk; nothing was changed."""

    code = "wrong_state"


def set_entry(text: str, agent_id: str, entry: Entry) -> str:
    """Return the text with a server of an agent (or of ``defaults``) added or replaced."""
    return _edited(text, agent_id, str(entry["name"]), entry)


def drop_entry(text: str, agent_id: str, name: str) -> str:
    """Return the text without a server of an agent (or of ``defaults``)."""
    return _edited(text, agent_id, name, None)


def _edited(text: str, agent_id: str, name: str, entry: Entry | None) -> str:
    expected = tomllib.loads(text)
    _change_plain(_plain_holder(expected, agent_id), name, entry)
    try:
        made = _written(text, agent_id, name, entry)
        meant = _essence(tomllib.loads(made)) == _essence(expected)
    except (TOMLKitError, tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError) as error:
        raise EditRefused(f"the file cannot be edited as it is written: {error}") from error
    if not meant:
        raise EditRefused("the file cannot be edited as it is written; edit it by hand")
    return made


# --- what the edit means


def _essence(plain: Plain) -> Plain:
    """Return what a file says; an empty ``[defaults]`` says nothing."""
    return {key: value for key, value in plain.items() if key != DEFAULTS or value}


def _plain_holder(plain: Plain, agent_id: str) -> Plain:
    if agent_id == DEFAULTS:
        return plain.setdefault(DEFAULTS, {})
    return next(agent for agent in plain["agents"] if agent["id"] == agent_id)


def _change_plain(holder: Plain, name: str, entry: Entry | None) -> None:
    entries = {one.get("name"): one for one in holder.pop("mcp", ())}
    if entry is None:
        del entries[name]
    else:
        entries[name] = entry
    if entries:
        holder["mcp"] = list(entries.values())


# --- how it is written


def _written(text: str, agent_id: str, name: str, entry: Entry | None) -> str:
    """Edit with line ends of one kind, for ``tomlkit`` writes ``\\n``; give the file's own back."""
    if _ends_lines_with_crlf(text):
        return _written(text.replace("\r\n", "\n"), agent_id, name, entry).replace("\n", "\r\n")
    if tomlkit.parse(text).as_string() != text:
        text = gathered(text)
    document = tomlkit.parse(text)
    tail = _give_comments_to_headings(document)
    if document.as_string() + tail != text:
        document, tail = tomlkit.parse(text), ""
    _change(_holder(document, agent_id), name, entry)
    made = document.as_string() + tail
    return made if text.strip() else made.lstrip("\n")


def _ends_lines_with_crlf(text: str) -> bool:
    return 0 < text.count("\r\n") == text.count("\n")


def _holder(document: Node, agent_id: str) -> Node:
    if agent_id != DEFAULTS:
        return next(agent for agent in document["agents"] if agent["id"] == agent_id)
    if DEFAULTS not in document:
        document[DEFAULTS] = tomlkit.table(is_super_table=True)
    return document[DEFAULTS]


def _change(holder: Node, name: str, entry: Entry | None) -> None:
    if "mcp" not in holder:
        holder["mcp"] = tomlkit.array() if isinstance(holder, InlineTable) else tomlkit.aot()
    entries: Node = holder["mcp"]
    place = next((i for i, one in enumerate(entries) if one.get("name") == name), None)
    if entry is None:
        del entries[place]
        if not len(entries):
            del holder["mcp"]
    elif place is None:
        _append(entries, entry)
    else:
        _replace(entries[place], entry)


def _append(entries: Node, entry: Entry) -> None:
    inline = isinstance(entries, Array)
    table: Node = tomlkit.inline_table() if inline else tomlkit.table()
    for key, value in entry.items():
        table[key] = _item(value)
    entries.append(table)
    if not inline:
        entries[-1].trivia.indent = "\n"  # after it has found its place, which indents it


def _replace(table: Node, entry: Entry) -> None:
    """Change the keys that differ and leave the others as they are written."""
    for key in [key for key in table if key not in entry]:
        del table[key]
    for key, value in entry.items():
        old = table.get(key)
        if is_object(value) and is_object(old):
            _replace(old, value)
        elif is_array(value) and is_array(old):
            _replace_items(old, value)
        elif old != value:
            table[key] = _item(value)


def _replace_items(array: Node, values: Sequence[JsonValue]) -> None:
    """Change the items that differ; each of the others keeps its line and its comment."""
    while len(array) > len(values):
        del array[-1]
    for i, value in enumerate(values):
        if i == len(array):
            array.append(value)
        elif array[i] != value:
            array[i] = value


def _item(value: JsonValue) -> Node:
    """Return a value as TOML; a table within an entry is written on its line."""
    if not is_object(value):
        return _made(value)
    table: Node = tomlkit.inline_table()
    for key, item in value.items():
        table[key] = item
    return table


# --- whose a comment is


class _Filler(Struct, frozen=True):
    """A comment or a blank line, where it stands."""

    container: Container
    index: int


def _give_comments_to_headings(document: Container) -> str:
    """Move comments after a blank line to the heading below; return those at the very end."""
    pending: list[_Filler] = []
    for met in _in_order(document):
        if isinstance(met, _Filler):
            pending.append(met)
            continue
        if met is not None:
            met.trivia.indent = _taken(pending) + met.trivia.indent
        pending = []
    return _taken(pending)


def _in_order(container: Container) -> Iterator[Table | _Filler | None]:
    """Yield headings and fillers as one reads them, and None for a key with its value."""
    for index, (_, item) in enumerate(list(container.body)):
        if isinstance(item, Table | AoT):
            for table in item.body if isinstance(item, AoT) else [item]:
                if not table.is_super_table():
                    yield table
                yield from _in_order(table.value)
        elif isinstance(item, Whitespace | Comment):
            yield _Filler(container, index)
        elif not isinstance(item, Null):
            yield None


def _taken(pending: list[_Filler]) -> str:
    """Take the fillers from the first blank line on out of their places; return their text."""
    items = [filler.container.body[filler.index][1] for filler in pending]
    blank = next((i for i, item in enumerate(items) if _is_blank_line(item)), len(items))
    for filler in pending[blank:]:
        filler.container.body[filler.index] = (None, Null())
    return "".join(item.as_string() for item in items[blank:])


def _is_blank_line(item: Item) -> bool:
    return isinstance(item, Whitespace) and "\n" in item.s


def gathered(text: str) -> str:
    """Return the text with all tables of a root where the first of them stands, and its comments.

    TOML lets ``[[agents]]``, ``[[defaults.mcp]]`` and ``[[agents]]`` follow each other; ``tomlkit``
    does not keep such an order. What stands before the first table and after the last one stays.
    """
    lines = (text if text.endswith("\n") else f"{text}\n").splitlines(keepends=True)
    headings = _headings(lines)
    bounds = [_with_comments(lines, index) for index in (*headings, len(lines))]
    places: dict[str, Lines] = {}
    for heading, (start, end) in zip(headings, pairwise(bounds), strict=True):
        [root] = tomllib.loads(lines[heading])
        places.setdefault(root, []).extend(lines[start:end])
    tables = [line for place in places.values() for line in place]
    return "".join([*lines[: bounds[0]], *tables, *lines[bounds[-1] :]])


def _headings(lines: Lines) -> list[int]:
    """Return where tables begin; a bracket within a value has an unfinished one before it."""
    found: list[int] = []
    for index, line in enumerate(lines):
        begin = found[-1] if found else 0
        if line.lstrip().startswith("[") and _is_whole("".join(lines[begin:index])):
            found.append(index)
    return found


def _is_whole(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _with_comments(lines: Lines, heading: int) -> int:
    """Return where the comments of a heading begin: after the first blank line above them."""
    start = heading
    for index in range(heading - 1, -1, -1):
        if lines[index].strip() == "":
            start = index
        elif not lines[index].lstrip().startswith("#"):
            break
    return start
