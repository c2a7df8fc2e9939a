"""Which tools a conversation has: the session's and the caller's own, told apart by name.

Made once for each conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from weakref import WeakKeyDictionary

from msgspec import Struct

from bascule.errors import BasculeError
from bascule.loop.own_tools import OwnTools
from bascule.loop.request import BadChat, ChatRequest, tool_name
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.toolset import ToolSet
from bascule.node.contract import ToolSession
from bascule.policy.naming import no_such_tool


class ToolNotOffered(BasculeError):
    """A tool was forced that the caller may not use."""

    code = "mcp_policy_denied"


class UnknownTool(BadChat):
    """A tool was forced that does not exist."""

    code = "mcp_invalid_arguments"

    def __init__(self, message: str) -> None:
        super().__init__(f"tool_choice names no tool: {message}", param="tool_choice")


class NameTaken(BadChat):
    """A tool of the caller's has the name of one of the session's."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the tool name {name!r} is one of Bascule's", param="tools")


class Offer(Struct, frozen=True):
    """The tools of one conversation, and what the model is told about choosing.

    ``theirs`` are tools of the caller's whose calls are handed back; ``own`` those that run here.
    """

    ours: Mapping[str, ToolDescriptor]
    theirs: frozenset[str]
    own: frozenset[str]
    tools: tuple[JsonObject, ...]
    first_choice: JsonValue
    later_choice: JsonValue
    parallel: bool | None
    revision: int
    warnings: tuple[str, ...]

    def fields(self, *, first: bool) -> dict[str, JsonValue]:
        """Return what a turn's request says about tools; nothing when there are none."""
        if not self.tools:
            return {}
        fields: dict[str, JsonValue] = {"tools": list(self.tools)}
        choice = self.first_choice if first else self.later_choice
        if choice is not None:
            fields["tool_choice"] = choice
        if self.parallel is not None:
            fields["parallel_tool_calls"] = self.parallel
        return fields


NOTHING_OFFERED = Offer({}, frozenset(), frozenset(), (), None, None, None, 0, ())


async def make_offer(
    chat: ChatRequest, session: ToolSession, own_tools: OwnTools | None = None
) -> Offer:
    """List the session's tools and join them to the caller's.

    Raises NameTaken when two tools have one name, ToolNotOffered when a tool is forced that the
    session does not have.
    """
    listed = await session.tools()
    shown = _shown(listed)
    theirs = frozenset(filter(None, map(tool_name, chat.tools)))
    _refuse_clash(theirs, shown.tools)
    offered, own = shown, _runnable(theirs, own_tools)
    if chat.tool_choice == "none":
        offered, own = _NOTHING_SHOWN, frozenset[str]()
    tools = (*chat.tools, *offered.entries)
    first = _Chooser(session, offered.tools, theirs).first(chat.tool_choice)
    return Offer(
        ours=offered.tools,
        theirs=theirs - own,
        own=own,
        tools=tools,
        first_choice=first,
        later_choice=_later(first),
        parallel=chat.parallel,
        revision=listed.revision,
        warnings=(*listed.warnings, *_idle_choice(chat, tools)),
    )


def offered_name(session: ToolSession, offered: Mapping[str, ToolDescriptor], name: str) -> str:
    """Return the model's name of a tool in any accepted spelling; unchanged when it is none."""
    if name in offered:
        return name
    meant = session.explain(name)
    found = (
        known
        for known, tool in offered.items()
        if (tool.server_id, tool.name) == (meant.server, meant.tool)
    )
    return next(found, name)


class _Shown(Struct, frozen=True):
    """The tools of one list by their names, and as upstreams take them."""

    tools: Mapping[str, ToolDescriptor]
    entries: tuple[JsonObject, ...]


_NOTHING_SHOWN = _Shown({}, ())
_SHOWN: WeakKeyDictionary[ToolSet, _Shown] = WeakKeyDictionary()


def _shown(listed: ToolSet) -> _Shown:
    """Return a list as it is offered; a session gives the same list while nothing changes."""
    shown = _SHOWN.get(listed)
    if shown is None:
        entries = tuple(_entry(_Defined(tool)) for tool in listed)
        shown = _SHOWN[listed] = _Shown({tool.model_name: tool for tool in listed}, entries)
    return shown


class _Defined:
    """A tool as a key: the same name and definition are shown to models in the same words."""

    __slots__ = ("_key", "tool")

    def __init__(self, tool: ToolDescriptor) -> None:
        self.tool = tool
        self._key = (tool.model_name, tool.digest)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Defined) or self._key != other._key:
            return False
        # The digest is that of the server's own words; what is shown of them may be masked.
        mine, theirs = self.tool, other.tool
        return mine is theirs or mine.definition == theirs.definition


@lru_cache(maxsize=4096)
def _entry(defined: _Defined) -> JsonObject:
    """Return a tool as upstreams take it, with its prose made harmless: once, for that is slow."""
    return ToolSet([defined.tool], revision=0).openai()[0]


def _refuse_clash(theirs: frozenset[str], ours: Mapping[str, ToolDescriptor]) -> None:
    clash = sorted(theirs & ours.keys())
    if clash:
        raise NameTaken(clash[0])


def _runnable(theirs: frozenset[str], own_tools: OwnTools | None) -> frozenset[str]:
    return frozenset() if own_tools is None else frozenset(filter(own_tools.has, theirs))


class _Chooser(Struct, frozen=True):
    """Reads ``tool_choice``, and puts the model's names in the place of other spellings."""

    session: ToolSession
    ours: Mapping[str, ToolDescriptor]
    theirs: frozenset[str]

    def first(self, choice: JsonValue) -> JsonValue:
        """Return the choice for the first turn."""
        if not is_object(choice):
            return choice
        if choice.get("type") == "allowed_tools":
            return self._among(choice)
        return self._forced(choice)

    def _forced(self, choice: JsonObject) -> JsonObject:
        inner = choice.get(str(choice.get("type", "function")))
        given = inner.get("name") if is_object(inner) else choice.get("name")
        if not isinstance(given, str) or not given:
            raise BadChat("tool_choice names no tool", param="tool_choice")
        if given in self.theirs:
            return choice
        return {"type": "function", "function": {"name": self._ours_named(given)}}

    def _ours_named(self, given: str) -> str:
        name = offered_name(self.session, self.ours, given)
        if name not in self.ours:
            why = self.session.explain(given).decision
            if why.names_nothing:
                raise UnknownTool(no_such_tool(why, self.ours.values()).message)
            text = f"tool_choice names a tool that may not be used: {why} ({why.reason})"
            raise ToolNotOffered(text)
        return name

    def _among(self, choice: JsonObject) -> JsonObject:
        """Read OpenAI's ``allowed_tools``: a part of the tools, and whether one must be used."""
        among = choice.get("allowed_tools")
        tools = among.get("tools") if is_object(among) else None
        if not is_object(among) or not is_array(tools) or not all(map(is_object, tools)):
            raise BadChat("allowed_tools needs a list of tools", param="tool_choice")
        return {**choice, "allowed_tools": {**among, "tools": [*map(self._forced, tools)]}}


def _later(first: JsonValue) -> JsonValue:
    """Return the choice after the first turn: who must call a tool for ever never answers."""
    if not is_object(first):
        return "auto" if first == "required" else first
    if first.get("type") == "allowed_tools":
        return {**first, "allowed_tools": {**first["allowed_tools"], "mode": "auto"}}
    return "auto"


def _idle_choice(chat: ChatRequest, tools: tuple[JsonObject, ...]) -> tuple[str, ...]:
    if tools or chat.tool_choice in (None, "none", "auto"):
        return ()
    return ("tool_choice was left out: there is no tool to choose",)
