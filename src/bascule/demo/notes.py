"""The notes of the demo and the tools that work on them.

A tool is a function from arguments to a JSON object; what the caller got wrong is a
``ToolFailure``, in words a model can act on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bascule.clock import SYSTEM_CLOCK, Clock

Json = dict[str, Any]
MAX_NOTES = 1000
MAX_NOTE_CHARACTERS = 20_000
EXCERPT_MARGIN = 30

FIRST_NOTES = {
    "welcome": (
        "These notes live in the memory of the demo server and are gone when it ends. "
        "List them, read them, search them, write your own."
    ),
    "drawbridge": (
        "A bascule is a drawbridge balanced by a counterweight: raised by default, "
        "lowered for those who may cross."
    ),
    "shopping": "Bread, two lemons, olive oil, a dozen eggs, coffee beans.",
    "reading-list": (
        "The Design of Everyday Things. A Pattern Language. The Mythical Man-Month, "
        "at least the chapter on conceptual integrity."
    ),
}


class ToolFailure(Exception):
    """The call cannot be carried out; the message says what to do instead."""


@dataclass
class Notebook:
    """Notes by name, in the order they were written."""

    notes: dict[str, str] = field(default_factory=lambda: dict(FIRST_NOTES))
    clock: Clock = SYSTEM_CLOCK

    def list_notes(self, arguments: Json) -> Json:
        """Every note with its length."""
        del arguments
        return {"notes": [{"name": n, "characters": len(t)} for n, t in self.notes.items()]}

    def read_note(self, arguments: Json) -> Json:
        """One note."""
        name = self.existing(arguments)
        return {"name": name, "text": self.notes[name]}

    def search_notes(self, arguments: Json) -> Json:
        """Notes that contain the query, each with an excerpt."""
        query = text_of(arguments, "query").casefold()
        limit = arguments.get("limit", 10)
        if not isinstance(limit, int) or limit < 1:
            raise ToolFailure("limit must be a whole number of at least 1")
        found = [
            {"name": name, "excerpt": excerpt(text, query)}
            for name, text in self.notes.items()
            if query in text.casefold() or query in name.casefold()
        ]
        return {"matches": found[:limit], "total": len(found)}

    def write_note(self, arguments: Json) -> Json:
        """Write a note, or write over the one of that name."""
        name, text = text_of(arguments, "name"), text_of(arguments, "text")
        created = name not in self.notes
        if created and len(self.notes) >= MAX_NOTES:
            raise ToolFailure("the notebook is full: delete a note first")
        if len(text) > MAX_NOTE_CHARACTERS:
            raise ToolFailure(f"a note holds at most {MAX_NOTE_CHARACTERS} characters")
        self.notes[name] = text
        return {"name": name, "created": created}

    def delete_note(self, arguments: Json) -> Json:
        """Delete a note for good."""
        name = self.existing(arguments)
        del self.notes[name]
        return {"name": name, "deleted": True}

    def current_time(self, arguments: Json) -> Json:
        """The time, in the zone asked for."""
        name = arguments.get("timezone", "UTC")
        try:
            zone = UTC if name == "UTC" else ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as problem:
            raise ToolFailure(f"unknown time zone {name!r}: try 'Europe/Zurich'") from problem
        moment = datetime.fromtimestamp(self.clock.now(), zone)
        return {"timezone": name, "time": moment.isoformat(timespec="seconds")}

    def existing(self, arguments: Json) -> str:
        """The name in the arguments, if there is such a note."""
        name = text_of(arguments, "name")
        if name not in self.notes:
            raise ToolFailure(f"there is no note {name!r}: there are {', '.join(self.notes)}")
        return name


def text_of(arguments: Json, key: str) -> str:
    """A text that has to be there."""
    value = arguments.get(key)
    if not isinstance(value, str) or not value:
        raise ToolFailure(f"{key} must be a text that is not empty")
    return value


def excerpt(text: str, query: str) -> str:
    """The words around the first match."""
    at = max(text.casefold().find(query), 0)
    start, end = max(at - EXCERPT_MARGIN, 0), at + len(query) + EXCERPT_MARGIN
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


@dataclass(frozen=True)
class Tool:
    """How a tool is listed, and what it does."""

    description: str
    inputs: Json
    outputs: Json
    run: Callable[[Notebook, Json], Json]
    optional: tuple[str, ...] = ()
    reads_only: bool = True
    destroys: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__

    def listed(self) -> Json:
        """The tool as ``tools/list`` shows it."""
        return {
            "name": self.name,
            "title": self.name.replace("_", " ").capitalize(),
            "description": self.description,
            "inputSchema": object_of(self.inputs, self.optional),
            "outputSchema": object_of(self.outputs),
            "annotations": {
                "readOnlyHint": self.reads_only,
                "destructiveHint": self.destroys,
                "idempotentHint": not self.destroys,
                "openWorldHint": False,
            },
        }


def object_of(properties: Json, optional: tuple[str, ...] = ()) -> Json:
    """A closed object schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def string(description: str) -> Json:
    """A text of at least one character."""
    return {"type": "string", "minLength": 1, "description": description}


def list_of(*names: str) -> Json:
    """A list of objects with these fields."""
    return {"type": "array", "items": object_of({name: {} for name in names})}


NAME = string("The name of the note, as list_notes shows it.")
LIMIT: Json = {
    "type": "integer",
    "minimum": 1,
    "maximum": 100,
    "default": 10,
    "description": "At most this many matches.",
}

TOOLS = (
    Tool(
        description="List every note by name, with its length. Start here.",
        inputs={},
        outputs={"notes": list_of("name", "characters")},
        run=Notebook.list_notes,
    ),
    Tool(
        description="Read the full text of one note.",
        inputs={"name": NAME},
        outputs={"name": {"type": "string"}, "text": {"type": "string"}},
        run=Notebook.read_note,
    ),
    Tool(
        description="Find notes that contain a word or phrase, ignoring case.",
        inputs={"query": string("The word or phrase to look for."), "limit": LIMIT},
        outputs={"matches": list_of("name", "excerpt"), "total": {"type": "integer"}},
        run=Notebook.search_notes,
        optional=("limit",),
    ),
    Tool(
        description="Write a note. A note that already has this name is written over.",
        inputs={"name": string("A short name."), "text": string("The text of the note.")},
        outputs={"name": {"type": "string"}, "created": {"type": "boolean"}},
        run=Notebook.write_note,
        reads_only=False,
    ),
    Tool(
        description="Delete a note for good.",
        inputs={"name": NAME},
        outputs={"name": {"type": "string"}, "deleted": {"type": "boolean"}},
        run=Notebook.delete_note,
        reads_only=False,
        destroys=True,
    ),
    Tool(
        description="Tell the current date and time in a time zone.",
        inputs={"timezone": string("An IANA zone such as Europe/Zurich; UTC when absent.")},
        outputs={"timezone": {"type": "string"}, "time": {"type": "string"}},
        run=Notebook.current_time,
        optional=("timezone",),
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}


def call(notebook: Notebook, name: str, arguments: Json) -> Json:
    """Run a tool and put what came of it into a tool result."""
    try:
        value = BY_NAME[name].run(notebook, arguments)
    except ToolFailure as failure:
        return {"content": [{"type": "text", "text": str(failure)}], "isError": True}
    text = json.dumps(value, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": value}
