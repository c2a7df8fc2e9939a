"""What each layer says of every server and tool of a session.

``compose.py`` and ``access.py`` hold the decisions; this sorts their objections by who made them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from bascule.model.decision import Decision, Layer, Reason
from bascule.model.effective_set import (
    LAYERS,
    Effect,
    EffectiveServer,
    EffectiveTool,
    LayerName,
    LayerVerdict,
)
from bascule.model.json import JsonObject
from bascule.model.platform import PlatformRecord
from bascule.model.server import ApprovalMode, ServerRecord
from bascule.model.snapshot import Snapshot
from bascule.model.tool import ToolDescriptor
from bascule.policy.access import Access, Catalogue, classifier, compile_access, planner
from bascule.policy.characters import neutralise
from bascule.policy.compose import UNBOUNDED, Effective, Objection
from bascule.policy.selection import ServerChoice, ToolFilter

#: Returns the edit that would lift a denial, or an empty text.
EditOf: TypeAlias = Callable[[JsonObject], str]
Layers: TypeAlias = tuple[LayerVerdict, ...]
#: What the platform's own record objects to; all else of its layer is a server's record.
_OF_PLATFORM = frozenset[Reason]({"platform_denied", "name_collision"})
_PROFILE = "profile "
#: What is lifted depends on which patterns of a list cover the very tool.
_BY_PATTERN = frozenset[Reason]({"platform_denied", "task_denied", "user_denied", "session_denied"})
#: A name that is the same however it is quoted, and one to stand for all of that kind.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
_SOME_TOOL = "some_tool_of_this_server_0"


class Placed(NamedTuple):
    """An objection, and which of the layers made it."""

    layer: LayerName
    reason: Reason
    rule: str


class ToolFacts(NamedTuple):
    """What is the same of a tool in every session."""

    tool: ToolDescriptor
    tool_name: str
    effect: Effect
    idempotent: bool
    approval: ApprovalMode


Facts: TypeAlias = Mapping[str, tuple[ToolFacts, ...]]


def facts_of(registry: Snapshot, catalogue: Catalogue) -> Facts:
    """Return the known tools of every server of the registry, by name."""
    servers = registry.servers
    return {
        server: tuple(_facts(registry.platform, servers[server], tools))
        for server, tools in catalogue.items()
        if server in servers
    }


def _facts(
    platform: PlatformRecord, record: ServerRecord, tools: Iterable[ToolDescriptor]
) -> Iterator[ToolFacts]:
    classed, plan = classifier(record), planner(platform, record)
    for tool in sorted(tools, key=lambda tool: tool.name):
        reads, idempotent = classed(tool.name)
        shown = neutralise(tool.name).text
        effect: Effect = "read" if reads else "write"
        yield ToolFacts(tool, shown, effect, idempotent, plan(tool.name).mode)


class Refusing(NamedTuple):
    """Why a session is refused as a whole, and the edit that would lift that."""

    placed: Placed
    edit: str


def effective_servers(
    effective: Effective, known: Facts, edit: EditOf, refusing: Refusing | None = None
) -> tuple[EffectiveServer, ...]:
    """Return every server of the registry and every other one that is named.

    ``effective`` is what would be left where the session is refused: then nothing is allowed.
    """
    found = _Verdicts(effective, known, edit, refusing)
    named = (decision.server for decision in effective.decisions)
    return tuple(map(found.server, dict.fromkeys((*effective.registry.servers, *named))))


class _Verdicts:
    def __init__(
        self, effective: Effective, known: Facts, edit: EditOf, refusing: Refusing | None
    ) -> None:
        self._effective = effective
        self._known = known
        self._edit = edit
        self._refusing = refusing
        listed = {server: [one.tool for one in tools] for server, tools in known.items()}
        self._access: Access = compile_access(effective, listed)
        self._started = frozenset(effective.bounds.default or ())
        self._servers_said = frozenset(_speakers(effective))
        self._tools_said = self._servers_said | frozenset(_filtering(effective))

    def server(self, server: str) -> EffectiveServer:
        effective = self._effective
        record, tools = effective.registry.servers.get(server), self._known.get(server)
        placed = [*_placed(effective, server)]
        edits = [self._edit(_denial(server, None, one)) for one in placed]
        if self._refusing is not None:
            placed, edits = [*placed, self._refusing.placed], [*edits, self._refusing.edit]
        layers = _denied(_quiet(self._servers_said), placed, edits)
        shown: Iterable[EffectiveTool] = ()
        if record is not None and tools is not None:
            above = _denied(_quiet(self._tools_said), placed, edits)
            shown = self._tools(server, tools, above)
        return EffectiveServer(
            server_id=server,
            display_name="" if record is None else record.display_name,
            allowed=not placed,
            starts_with=server in self._started,
            listed=tools is not None,
            layers=layers,
            edit=_edit_of(layers),
            tools=tuple(shown),
        )

    def _tools(
        self, server: str, tools: Sequence[ToolFacts], above: Layers
    ) -> Iterator[EffectiveTool]:
        """Yield the tools of a server; ``above`` is what is said of all of them."""
        objections = self._effective.objector(server)
        closed = any(one.allowed is False for one in above)
        refused = _Refused(server, above, self._edit)
        for tool, tool_name, effect, _, approval in tools:
            grant = None if closed else self._access.grants.get(tool.model_name)
            allowed = grant is not None and grant.tool is tool
            layers, edit = above, None
            if not allowed:
                made = self._access.decisions.get(tool.model_name)
                layers, edit = refused.of(tool.name, objections(tool.name), made)
            yield EffectiveTool(
                name=tool.model_name,
                tool_name=tool_name,
                effect=effect,
                allowed=allowed,
                approval=approval,
                layers=layers,
                edit=edit,
            )


class _Refused:
    """The verdicts on tools of a server that are not allowed.

    Of tools with plain names that the same is said of, they are made once: only the name differs.
    """

    def __init__(self, server: str, above: Layers, edit: EditOf) -> None:
        self._server = server
        self._above = above
        self._edit = edit
        self._made: dict[tuple[Placed, ...], tuple[Layers, str | None]] = {}

    def of(
        self, tool: str, objections: tuple[Objection, ...], made: Decision | None
    ) -> tuple[Layers, str | None]:
        if not objections and made is not None and not made.allowed:
            # by the whole list: a name that two have, or too many tools
            objections = ((made.layer, made.reason, made.rule),)
        placed = tuple(Placed(_layer_of(*one), one[1], one[2]) for one in objections)
        if not _PLAIN.fullmatch(tool) or any(one.reason in _BY_PATTERN for one in placed):
            return self._layers(tool, placed)
        found = self._made.get(placed)
        if found is None:
            found = self._made[placed] = self._layers(_SOME_TOOL, placed)
        layers, edit = found
        if not placed:
            return found
        return tuple([_named(one, tool) for one in layers]), edit and edit.replace(_SOME_TOOL, tool)

    def _layers(self, tool: str, placed: tuple[Placed, ...]) -> tuple[Layers, str | None]:
        edits = [self._edit(_denial(self._server, tool, one)) for one in placed]
        layers = _denied(self._above, placed, edits)
        return layers, _edit_of(layers)


def _named(made: LayerVerdict, tool: str) -> LayerVerdict:
    if made.edit is None or _SOME_TOOL not in made.edit:
        return made
    edit = made.edit.replace(_SOME_TOOL, tool)
    return LayerVerdict(made.layer, made.allowed, made.rule, made.reason, edit)


def _placed(effective: Effective, server: str) -> Iterator[Placed]:
    for one in effective.objections(server):
        if one.reason in ("not_allowed", "not_default"):
            yield from unchosen(effective.bounds.choices, server, one.reason)
        else:
            yield Placed(_layer_of(one.layer, one.reason, one.rule), one.reason, one.rule)


def unchosen(choices: Iterable[ServerChoice], server: str, reason: Reason) -> Iterator[Placed]:
    """Say which sources of the task leave a server out; where none does, all name none."""
    allowed = reason == "not_allowed"
    field = "allowed_server_ids" if allowed else "default_server_ids"
    chosen = [(one.source, one.allowed if allowed else one.default) for one in choices]
    lacking = [
        source for source, servers in chosen if servers is not None and server not in servers
    ]
    for source in lacking or ["task"]:
        rule = f"{source} {field}" if source.startswith(_PROFILE) else f"mcp.{field}"
        yield Placed(_layer_of("task", reason, rule), reason, rule)


def _layer_of(layer: Layer, reason: Reason, rule: str) -> LayerName:
    """Return who of six made an objection of one of the policy's layers."""
    if layer == "platform":
        return "platform" if reason in _OF_PLATFORM else "server"
    if layer == "task":
        return "profile" if rule.startswith(_PROFILE) else "task"
    return "user" if layer == "user" else "session"


def _speakers(effective: Effective) -> Iterator[LayerName]:
    """Yield who says anything about which servers there are."""
    yield "server"
    for choice in effective.bounds.choices:
        if choice.allowed is not None:
            yield "profile" if choice.source.startswith(_PROFILE) else "task"
    if effective.user.servers:
        yield "user"
    if effective.session.servers is not None or effective.bounds is UNBOUNDED:
        yield "session"


def _filtering(effective: Effective) -> Iterator[LayerName]:
    """Yield who says anything about tools."""
    if effective.registry.platform.tool_denylist:
        yield "platform"
    for one in effective.filters:
        if _narrows(one):
            yield _layer_of(one.layer, "allowed", one.source)


def _narrows(source: ToolFilter) -> bool:
    return source.allow is not None or bool(source.deny) or source.read_only


def _quiet(said: frozenset[LayerName]) -> Layers:
    return tuple(LayerVerdict(layer=layer, allowed=(layer in said) or None) for layer in LAYERS)


def _denied(before: Layers, placed: Sequence[Placed], edits: Sequence[str]) -> Layers:
    """Return verdicts with some more objections; the first of a layer gives its reason."""
    if not placed:
        return before
    layers = list(before)
    for one, edit in zip(placed, edits, strict=True):
        place = LAYERS.index(one.layer)
        old = layers[place]
        if old.allowed is False:
            layers[place] = replace(old, edit=_both(old.edit, edit or None))
        else:
            layers[place] = _no(one, edit)
    return tuple(layers)


def _no(made: Placed, edit: str) -> LayerVerdict:
    return LayerVerdict(
        layer=made.layer,
        allowed=False,
        rule=made.rule or None,
        reason=made.reason,
        edit=edit or None,
    )


def _edit_of(layers: Layers) -> str | None:
    """Return all edits that are needed; None where nothing is, or one is not known."""
    denied = [one.edit for one in layers if one.allowed is False]
    edit = denied[0] if denied else None
    for more in denied[1:]:
        edit = _both(edit, more)
    return edit


def _both(one: str | None, other: str | None) -> str | None:
    if one is None or other is None or one == other:
        return None if one is None or other is None else one
    return f"{one}; and {other}"


def _denial(server: str, tool: str | None, placed: Placed) -> JsonObject:
    return {"server": server, "tool": tool, "reason": placed.reason, "rule": placed.rule}
