"""A section at work inside real weakincentives; what happened is written as JSON.

``test_weakincentives.py`` runs this on a Python that the framework needs, with ``src`` on the path
and a folder to write in as its argument, and looks at every piece. The framework is imported by
name: where these files are checked it is not installed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from bascule.section import (
    McpConnectionError,
    McpConnectionPool,
    McpServerConfig,
    StdioTransport,
)
from bascule.section import weakincentives as adapter
from bascule.testing import ScriptedServer, do, tool

prompts: Any = import_module("weakincentives.prompt")
runtime: Any = import_module("weakincentives.runtime")
events: Any = import_module("weakincentives.runtime.events")
sessions: Any = import_module("weakincentives.runtime.session")
specs: Any = import_module("weakincentives.adapters.tool_spec")
#: What the framework's own adapters call tools with: policies, transactions, events.
executor: Any = import_module("weakincentives.adapters._shared")

ISSUE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "One line"},
        "class": {"type": "string", "enum": ["bug", "wish"]},
        "labels": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"line": {"type": "integer", "minimum": 1}}},
    },
    "required": ["title"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "child": {"$ref": "#"}},
}
COUNT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = [
    tool("echo", description="Écho ☃"),
    tool("create_issue", inputSchema=ISSUE),
    tool("readFile", description=""),
    tool("tree", inputSchema=TREE),
    tool("count", outputSchema=COUNT),
    tool("fail"),
    tool("never"),
    tool("erase"),
]
DOES: dict[str, Any] = {
    "create_issue": do("echo", text="created"),
    "count": do("structured", value={"n": 1}),
    "fail": do("error", text="it went wrong"),
    "never": "never",
}


class Desk:
    """A server with its journal, a section on it, and a session of the framework's."""

    def __init__(self, folder: Path, name: str, **options: Any) -> None:
        folder = folder / name
        folder.mkdir()
        self.journal = folder / "journal"
        server = ScriptedServer(
            behaviours={entry["name"]: DOES.get(entry["name"], "echo") for entry in TOOLS},
            tools=TOOLS,
            journal=self.journal,
        ).saved_to(folder / "script")
        command, args = server.command
        config = McpServerConfig(
            name="desk",
            transport=StdioTransport(command=command, args=tuple(args)),
            disabled_tools=("erase",),
            timeout=options.pop("timeout", 20.0),
        )
        self.heard: list[Any] = []
        dispatcher = runtime.InProcessDispatcher()
        dispatcher.subscribe(events.ToolInvoked, self.heard.append)
        self.session = runtime.Session(dispatcher=dispatcher)
        kind: Any = adapter.McpIntegrationSection
        self.section = kind(servers=[config], session=self.session, **options)

    def prompt(self, *sections: Any, **options: Any) -> Any:
        template = prompts.PromptTemplate[None](
            ns="tests", key="desk", sections=[*(sections or [self.section])], **options
        )
        return prompts.Prompt(template)

    @contextmanager
    def at_work(self, prompt: Any) -> Any:
        """The tools of a prompt, by name, as an adapter of the framework calls them."""
        rendered = prompt.render(session=self.session)
        with prompt.resources:
            yield {
                bridged.name: bridged
                for bridged in executor.create_bridged_tools(
                    rendered.tools,
                    session=self.session,
                    adapter=None,
                    prompt=prompt,
                    rendered_prompt=rendered,
                    deadline=None,
                    budget_tracker=None,
                    adapter_name="tests",
                )
            }

    def sent(self, name: str) -> list[Any]:
        """The arguments with which a tool was called, as the server got them."""
        lines = self.journal.read_text(encoding="utf-8").splitlines()
        calls = [m["params"] for m in map(json.loads, lines) if m.get("method") == "tools/call"]
        return [call.get("arguments") for call in calls if call["name"] == name]


def has_processes() -> bool:
    return bool(psutil.Process().children(recursive=True))


def rendering(desk: Desk) -> dict[str, Any]:
    before = desk.section.state
    try:
        desk.prompt()
    except McpConnectionError as error:
        refused = str(error)
    else:
        refused = ""
    with desk.section:
        rendered = desk.prompt().render(session=desk.session)
        tools = {entry.name: entry for entry in rendered.tools}
        return {
            "is_section": isinstance(desk.section, prompts.Section),
            "are_tools": all(isinstance(entry, prompts.Tool) for entry in rendered.tools),
            "states": [before, desk.section.state],
            "refused": refused,
            "text": rendered.text,
            "descriptions": {name: entry.description for name, entry in tools.items()},
            "params": {name: entry.params_type.__name__ for name, entry in tools.items()},
            "specs": {name: specs.tool_to_spec(entry)["function"] for name, entry in tools.items()},
        }


def calling(desk: Desk) -> dict[str, Any]:
    """Call by hand: parse, handler, the framework's own context."""
    serde: Any = import_module("weakincentives.serde")
    with desk.section:
        prompt = desk.prompt()
        rendered = prompt.render(session=desk.session)
        context = prompts.ToolContext(
            prompt=prompt, rendered_prompt=rendered, adapter=None, session=desk.session
        )
        tools = {entry.name: entry for entry in rendered.tools}

        def call(name: str, arguments: Mapping[str, Any]) -> Any:
            params = serde.parse(tools[name].params_type, arguments, extra="forbid", coerce=False)
            return tools[name].handler(params, context=context)

        said = {"text": "hi"}
        issue = {"title": "A", "class": "bug", "labels": ["x"], "place": {"line": 3}}
        results = {
            "echo": call("desk_echo", said),
            "issue": call("desk_create_issue", issue),
            "short issue": call("desk_create_issue", {"title": "B"}),
            "outside the schema": call("desk_create_issue", {"title": "C", "place": {"line": 0}}),
            "renamed": call(next(name for name in tools if "readfile" in name), said),
            "tree": call("desk_tree", {"arguments": {"text": "a", "child": {"text": "b"}}}),
            "typed": call("desk_count", {}),
            "failed": call("desk_fail", {}),
        }
        typed = results["typed"].value
        return {
            "are_results": all(isinstance(r, prompts.ToolResult) for r in results.values()),
            "success": {name: result.success for name, result in results.items()},
            "messages": {name: result.message for name, result in results.items()},
            "shown": {name: result.render() for name, result in results.items()},
            "value": type(typed).__name__,
            "structured": [type(typed.structured).__name__, typed.structured.n],
            "is_error": results["failed"].value.is_error,
            "issues": desk.sent("create_issue"),
            "trees": desk.sent("tree"),
            "kept": len(desk.section.inner.session.events),
        }


def executing(desk: Desk) -> dict[str, Any]:
    """Call as an adapter of the framework does, with its transactions and events."""
    with desk.section, desk.at_work(desk.prompt()) as tools:
        answers = {
            "good": tools["desk_echo"]({"text": "hi"}),
            "bad": tools["desk_fail"]({}),
            "typed": tools["desk_count"]({}),
            "not a text": tools["desk_echo"]({"text": 5}),
            "unknown key": tools["desk_echo"]({"tekst": "hi"}),
        }
        snapshot = sessions.Snapshot.from_json(desk.session.snapshot().to_json())
        outputs = snapshot.slices[adapter.McpToolOutput]
        return {
            "answers": {
                name: [a["content"][0]["text"], a["isError"]] for name, a in answers.items()
            },
            "events": [
                [event.name, event.params, event.rendered_output, event.result.success]
                for event in desk.heard
            ],
            "in_session": len(desk.session[events.ToolInvoked].all()),
            "restored": [[list(output.content), output.structured] for output in outputs],
            "sent": desk.sent("echo"),
        }


@dataclass(slots=True, frozen=True)
class Note:
    """Something that a tool of the host's own writes into the session."""

    text: str


@dataclass(slots=True, frozen=True)
class Noted:
    """The params of that tool, and its result."""

    server_tool: str

    def render(self) -> str:
        return self.server_tool


def noting(params: Noted, *, context: Any) -> Any:
    """A tool of the host's own that uses a server by hand."""
    context.session[Note].append(Note(params.server_tool))
    result = context.resources.get(McpConnectionPool).get("desk").call(params.server_tool, {})
    if not result.success:
        return prompts.ToolResult.error(f"{result.error.code}: {result.message}")
    return prompts.ToolResult.ok(params)


def beside(desk: Desk) -> dict[str, Any]:
    """A tool of the host's own beside the server's: the pool, transactions, what is disabled."""
    own = prompts.Tool[Noted, Noted](name="note", description="Note.", handler=noting)
    notes = prompts.MarkdownSection(title="Notes", key="notes", template="Take notes.", tools=[own])
    with desk.section, desk.at_work(desk.prompt(notes, desk.section)) as tools:
        answers = [
            tools["note"]({"server_tool": name})["content"][0]["text"]
            for name in ("fail", "echo", "erase")
        ]
        return {
            "tools": sorted(tools),
            "answers": answers,
            "notes": [note.text for note in desk.session[Note].all()],
            "erased": desk.sent("erase"),
        }


def ruled(desk: Desk) -> dict[str, Any]:
    """Policies of the framework hold for the server's tools; the server hears nothing."""
    order = prompts.SequentialDependencyPolicy(
        dependencies={"desk_create_issue": frozenset({"desk_echo"})}
    )
    with desk.section, desk.at_work(desk.prompt(policies=[order])) as tools:
        answers = [
            tools["desk_create_issue"]({"title": "A"}),
            tools["desk_echo"]({}),
            tools["desk_create_issue"]({"title": "B"}),
        ]
        return {
            "texts": [answer["content"][0]["text"] for answer in answers],
            "sent": desk.sent("create_issue"),
        }


def late(desk: Desk) -> dict[str, Any]:
    with desk.section, desk.at_work(desk.prompt()) as tools:
        answer = tools["desk_never"]({})
        return {
            "is_error": answer["isError"],
            "text": answer["content"][0]["text"],
            "event": [desk.heard[-1].name, desk.heard[-1].result.success],
        }


def overridden(desk: Desk, folder: Path) -> dict[str, Any]:
    """The framework's store of overrides replaces the section's text and a tool's description."""
    store = prompts.LocalPromptOverridesStore(root_path=folder)
    with desk.section:
        prompt = desk.prompt()
        seeded = store.seed(prompt)
        prompt = prompts.Prompt(prompt.template, overrides_store=store)
        ((path, original),) = seeded.sections.items()
        versioning: Any = import_module("weakincentives.prompt.overrides")
        store.store(
            prompt.descriptor,
            versioning.SectionOverride(
                path=path,
                expected_hash=original.expected_hash,
                body="Only ${tool_count} tools of ${server_names}, for $5.",
            ),
        )
        return {"path": list(path), "text": prompt.render(session=desk.session).text}


def cloned(desk: Desk) -> dict[str, Any]:
    """Each session has a clone; a run that cleans up its own harms no other."""
    desk.section.connect()
    other = runtime.Session()
    clone = desk.section.clone(session=other)
    first = desk.prompt()
    second = prompts.Prompt(prompts.PromptTemplate[None](ns="tests", key="other", sections=[clone]))
    kept = {"sessions": [desk.section.session is desk.session, clone.session is other]}
    second.cleanup()
    second.cleanup()
    with desk.at_work(first) as tools:
        kept["after the clone's"] = tools["desk_echo"]({"text": "hi"})["isError"]
    third = desk.section.clone(session=other)
    first.cleanup()
    kept["one left"] = [desk.section.state, has_processes()]
    third.cleanup()
    kept["none left"] = [desk.section.state, has_processes()]
    desk.section.connect()
    kept["again"] = [third.state, has_processes()]
    desk.section.clone(session=other)
    desk.section.disconnect()
    kept["disconnected"] = [desk.section.state, has_processes()]
    return kept


async def in_async_code(desk: Desk) -> list[str]:
    async with desk.section:
        inside = desk.section.state
        prompt = desk.prompt()
        with desk.at_work(prompt) as tools:
            answer = await asyncio.to_thread(tools["desk_echo"], {"text": "hi"})
    return [inside, answer["content"][0]["text"], desk.section.state]


def main(folder: Path) -> None:
    desks = {name: Desk(folder, name) for name in ("render", "call", "run", "beside", "rule")}
    desks["late"] = Desk(folder, "late", timeout=0.5)
    desks["override"] = Desk(folder, "override", accepts_overrides=True)
    desks["clone"] = Desk(folder, "clone")
    desks["async"] = Desk(folder, "async")
    report = {
        "python": list(sys.version_info[:3]),
        "weakincentives": version("weakincentives"),
        "rendering": rendering(desks["render"]),
        "calling": calling(desks["call"]),
        "executing": executing(desks["run"]),
        "beside": beside(desks["beside"]),
        "ruled": ruled(desks["rule"]),
        "late": late(desks["late"]),
        "overridden": overridden(desks["override"], folder),
        "cloned": cloned(desks["clone"]),
        "async": asyncio.run(in_async_code(desks["async"])),
    }
    report["left"] = {
        "processes": has_processes(),
        "threads": [t.name for t in threading.enumerate() if t.name == "bascule-bridge"],
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
