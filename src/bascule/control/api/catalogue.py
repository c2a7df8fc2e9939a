"""``/admin/api/mcp/tools``: every tool that a node knows of, and who may call one of them.

No server is asked or started for it. What is worked out once for all tools is kept while registry
and lists stay the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.json import json_response
from bascule.asgi.parameters import flag, only_parameters, word, wrong
from bascule.control.api import query
from bascule.control.api.tool_shelf import Shelf, ToolShelf
from bascule.control.registry.errors import NotFound
from bascule.control.registry.offload import apart
from bascule.model.effective_set import Effect
from bascule.model.json import is_object
from bascule.model.name import model_name
from bascule.model.server import ApprovalMode
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskRecord
from bascule.model.tool import ToolDescriptor
from bascule.policy.access import Access, Catalogue, compile_access, planner
from bascule.policy.characters import neutralise
from bascule.policy.compose import compose
from bascule.policy.edits import edit_of
from bascule.policy.selection import task_bounds
from bascule.policy.verdicts import ToolFacts, unchosen
from bascule.policy.who import Holder, holder, over_cap, people
from bascule.wire.api.catalogue import (
    CatalogueTool,
    PersonAccess,
    ToolAccess,
    ToolPage,
    ToolTaskAccess,
)

_EFFECTS: tuple[Effect, ...] = get_args(Effect)
_LONGEST = 200
#: So many people are looked at in each task, and so many tasks on a page unless it is said.
MAX_PEOPLE = 200
TASKS = 50
#: Of a title or a description, so much is shown.
MAX_TEXT = 4096
Row: TypeAlias = tuple[tuple[str, str], CatalogueTool, ToolDescriptor]


class Tools:
    """The endpoints of the catalogue."""

    def __init__(self, shelf: ToolShelf) -> None:
        self._shelf = shelf
        self._service = shelf.service
        self._rows: tuple[Shelf | None, tuple[Row, ...]] = (None, ())

    async def list(self, request: Request) -> Response:
        """Answer with the tools that are known, a page of them."""
        names = ("server", "q", "effect", "cursor", "limit", "definitions")
        only_parameters(request, *names)
        limit, cursor = query.limit(request) or query.MAX_PAGE, query.cursor(request)
        definitions, wanted = flag(request, "definitions"), _wanted(request)
        shelf = await self._shelf.current()
        every = await self._every(shelf)

        def page() -> ToolPage:
            rows = [row for row in every if wanted(row)]
            start = 0 if cursor is None else bisect_right(rows, _key(cursor), key=lambda r: r[0])
            some = rows[start : start + limit]
            more = start + limit < len(rows)
            return ToolPage(
                revision=shelf.registry.revision,
                total=len(rows),
                tools=tuple(_shown(row, definitions=definitions) for row in some),
                next_cursor=":".join(some[-1][0]) if some and more else None,
            )

        return json_response(await apart(len(every), page))

    async def _every(self, shelf: Shelf) -> tuple[Row, ...]:
        """Return a row for every tool, made once for a shelf."""
        made_for, rows = self._rows
        if made_for is not shelf:
            rows = await apart(shelf.size, partial(rows_of, shelf))
            self._rows = (shelf, rows)
        return rows

    async def access(self, request: Request) -> Response:
        """Say who may call a tool in which task, and what stands in the way of the others."""
        only_parameters(request, "cursor", "limit", "person")
        limit, cursor = query.limit(request) or TASKS, query.cursor(request)
        person, registry = word(request, "person"), self._service.snapshot()
        server = request.path_params["server_id"]
        tool = self._native(registry, server, request.path_params["tool"])
        approval = planner(registry.platform, registry.servers[server])(tool).mode
        known = self._service.known_tools()
        asked = _Asked(registry, server, tool, self._shelf.environment, approval, known)
        tasks = [one for id, one in registry.tasks.items() if cursor is None or id > cursor]
        page = tasks[:limit]
        found = await apart(
            len(page) * (1 + len(registry.users)), partial(_access, asked, page, person)
        )
        last = page[-1].task_id if len(page) < len(tasks) else None
        return json_response(replace(found, next_cursor=last))

    def _native(self, registry: Snapshot, server: str, tool: str) -> str:
        """Return a tool's own name, by that or as it is shown; raise NotFound."""
        if server not in registry.servers:
            raise NotFound("server", server, self._service.view.objects)
        known = self._service.known_tools().get(server)
        if known is None:
            return tool  # policy decides on names, listed or not
        spelled = {name: one.name for one in known for name in (_text(one.name), one.name)}
        if tool not in spelled:
            details = {"server_id": server, "tool": tool}
            raise Refused("not_found", f"server {server!r} lists no such tool", details=details)
        return spelled[tool]


def rows_of(shelf: Shelf) -> tuple[Row, ...]:
    """Decide on every known tool, as record and platform do."""
    named = SessionRequest(server_ids=tuple(shelf.facts))
    everything = compose(shelf.registry, None, named)
    listed = {server: [one.tool for one in tools] for server, tools in shelf.facts.items()}
    access = compile_access(everything, listed)
    rows = [row for server, tools in shelf.facts.items() for row in _rows(access, server, tools)]
    return tuple(sorted(rows, key=lambda row: row[0]))


def _rows(access: Access, server: str, tools: Iterable[ToolFacts]) -> Iterator[Row]:
    gate = access.effective.gate(server)
    for tool, tool_name, effect, idempotent, approval in tools:
        decision = access.decisions.get(tool.model_name) or gate(tool.name)
        shown = CatalogueTool(
            name=tool.model_name,
            server_id=server,
            tool_name=tool_name,
            title=_text(tool.title),
            description=_text(tool.description),
            effect=effect,
            idempotent=idempotent,
            approval=approval,
            allowed=decision.allowed,
            reason=decision.reason,
            digest=tool.digest,
            annotations=tool.annotations if is_object(tool.annotations) else {},
        )
        yield (server, tool.model_name), shown, tool


def _text(text: str) -> str:
    """Return a server's words as they are shown; credentials are masked in them already."""
    return neutralise(text[:MAX_TEXT]).text


def _shown(row: Row, *, definitions: bool) -> CatalogueTool:
    _, tool, listed = row
    return replace(tool, definition=listed.definition) if definitions else tool


def _wanted(request: Request) -> Callable[[Row], bool]:
    """Return what a request filters by."""
    server, effect, text = (word(request, name) for name in ("server", "effect", "q"))
    if effect is not None and effect not in _EFFECTS:
        raise wrong("effect", f"must be one of: {', '.join(_EFFECTS)}")
    if text is not None and len(text) > _LONGEST:
        raise wrong("q", f"must be at most {_LONGEST} characters")
    part = (text or "").casefold()

    def wanted(row: Row) -> bool:
        tool = row[1]
        return (
            (server is None or tool.server_id == server)
            and (effect is None or tool.effect == effect)
            and (not part or part in _searched(tool))
        )

    return wanted


def _searched(tool: CatalogueTool) -> str:
    return f"{tool.name}\n{tool.tool_name}\n{tool.title}\n{tool.description}".casefold()


def _key(cursor: str) -> tuple[str, str]:
    server, _, name = cursor.partition(":")
    return server, name


# --- who may call it


class _Asked(Struct, frozen=True):
    """The tool in question, in the registry of one environment."""

    registry: Snapshot
    server: str
    tool: str
    environment: str | None
    approval: ApprovalMode
    known: Catalogue

    @property
    def name(self) -> str:
        return model_name(self.registry.servers[self.server].tool_namespace, self.tool)

    def held(self, task: TaskRecord, user: str | None) -> Holder:
        target = self.server, self.tool
        return holder(self.registry, task, user, target, self.environment)

    def task(self, task: TaskRecord, person: str | None) -> ToolTaskAccess:
        named = [person] if person is not None else islice(people(self.registry, task), MAX_PEOPLE)
        nobody = self.held(task, None)
        return ToolTaskAccess(
            task_id=task.task_id,
            allowed=nobody.allowed,
            approval=self.approval,
            reason=nobody.reason,
            edit=self._edit(task, nobody),
            people=tuple(self._person(task, one) for one in named),
        )

    def is_over_cap(self, task: TaskRecord) -> bool:
        return over_cap(self.registry, task, self.name, self.known, self.environment)

    def _person(self, task: TaskRecord, person: str) -> PersonAccess:
        held = self.held(task, person)
        return PersonAccess(
            person=person, allowed=held.allowed, reason=held.reason, edit=self._edit(task, held)
        )

    def _edit(self, task: TaskRecord, held: Holder) -> str | None:
        """Return what would lift the objection that decides."""
        if held.allowed:
            return None
        rules = [held.rule or ("" if held.user is None else f"user '{held.user}'")]
        if held.reason == "not_allowed":
            choices = task_bounds(self.registry, task.mcp, self.environment).choices
            rules = [one.rule for one in unchosen(choices, self.server, held.reason)]
        common = {"server": self.server, "tool": self.tool, "reason": held.reason}
        edits = [edit_of(self.registry, {**common, "rule": one}, task.task_id) for one in rules]
        return "; and ".join(edits) if all(edits) else None


def _access(asked: _Asked, tasks: Sequence[TaskRecord], person: str | None) -> ToolAccess:
    registry = asked.registry
    cut = person is None and len(registry.users) > MAX_PEOPLE
    capped = [
        _CAPPED.format(task.task_id, task.mcp.max_tools)
        for task in tasks
        if asked.is_over_cap(task)
    ]
    return ToolAccess(
        revision=registry.revision,
        name=asked.name,
        tasks=tuple(asked.task(task, person) for task in tasks),
        warnings=(*([_CUT.format(MAX_PEOPLE, len(registry.users))] if cut else ()), *capped),
    )


_CAPPED = (
    "task {!r}: mcp.max_tools is {}, and this tool is offered only to sessions that ask for fewer "
    "servers or tools: raise it, or choose with mcp.tool_allowlist, whose order counts"
)
_CUT = "the first {} of {} people are looked at in each task; ask for another with person=ID"
