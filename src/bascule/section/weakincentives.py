"""The same section inside real ``weakincentives`` (0.27, Python 3.12.3): its sections, its tools.

``section.py`` does everything; this only dresses it as what that framework expects, for hosts that
have it installed (``pip install 'bascule[weakincentives]'``)::

    from bascule.section.weakincentives import McpIntegrationSection

What differs there, and how it is met: tool names are lower case and descriptions ASCII, so a name
with capitals gets a hash and other letters are replaced; a result must be a dataclass, so
``McpToolOutput`` holds it; the framework itself keeps transactions and publishes ``ToolInvoked``;
it asks a section for its tools when a template is made, so connect first; each agent session has a
clone of a section and cleans it up after a run, so clones share connections until the last is done.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Self
from weakref import WeakSet

from bascule.model.content import readable
from bascule.model.json import is_object
from bascule.model.name import hashed_door_name
from bascule.section.inventory import LONGEST_DESCRIPTION
from bascule.section.runtime import AnyResult, AnyTool
from bascule.section.section import McpIntegrationParams
from bascule.section.section import McpIntegrationSection as Inner
from bascule.section.session import Session

#: Older ones fail in the framework's own ``Prompt.render``: calling a generic alias of a frozen,
#: slotted class raises there (CPython gh-115165).
OLDEST_PYTHON = (3, 12, 3)


@dataclass(slots=True, frozen=True)
class McpToolOutput:
    """What a tool answered: its blocks, and its structured value (typed where it has a schema)."""

    content: tuple[Any, ...] = ()
    structured: Any = None
    is_error: bool = False

    def render(self) -> str:
        """Return what a model reads: texts and notes of media, or JSON where there are none."""
        text = readable(self.content)
        if text:
            return text
        plain = self.structured if self.structured is not None else list(self.content)
        return json.dumps(plain, ensure_ascii=False, default=_plain)


@dataclass(slots=True, frozen=True)
class McpArguments:
    """The params of a tool whose schema refers to itself, which the framework cannot describe."""

    arguments: dict[str, Any]


def __getattr__(name: str) -> Any:
    """Make the class when it is asked for: only then is the framework needed."""
    if name == "McpIntegrationSection":
        return _section_type()
    raise AttributeError(f"module 'bascule.section.weakincentives' has no attribute {name!r}")


class _Shared:
    """A section of ours, and the clones that use it: the last one to leave disconnects it."""

    def __init__(self, inner: Inner) -> None:
        self.inner = inner
        self._lock = Lock()
        self._users: WeakSet[_Dressed] = WeakSet()

    def join(self, user: _Dressed) -> None:
        """Count one in; one that is forgotten without leaving counts no more either."""
        with self._lock:
            self._users.add(user)

    def leave(self, user: _Dressed) -> None:
        """Count one out."""
        with self._lock:
            self._users.discard(user)
            last = not self._users
        if last:
            self.inner.disconnect()


class _Dressed:
    """What makes a section of the framework's out of ours."""

    key: str
    format_heading: Callable[..., str]

    def __init__(
        self, *, session: object = None, shared: _Shared | None = None, **options: Any
    ) -> None:
        # The framework keeps the events of its own session: nobody would read them here.
        self._shared = shared or _Shared(Inner(session=Session(kept_events=0), **options))
        self._shared.join(self)
        self.inner = self._shared.inner
        as_section: Any = super().__init__
        as_section(
            title=self.inner.title,
            key=self.inner.key,
            default_params=McpIntegrationParams(),
            accepts_overrides=self.inner.accepts_overrides,
        )
        self.session = session
        #: The tools they were made of, under other names, and as the framework's own.
        self._shown: tuple[object, tuple[AnyTool, ...], tuple[Any, ...]] = (None, (), ())

    def __getattr__(self, name: str) -> Any:
        if name in _PASSED_ON:
            return getattr(self.inner, name)
        raise AttributeError(name)

    def tools(self) -> tuple[Any, ...]:
        """Return the tools as the framework's own; raise McpConnectionError before connecting."""
        self._renamed()
        return self._shown[2]

    def render_body(self, params: McpIntegrationParams | None, **_: object) -> str:
        """Return the inventory, or the template filled in."""
        return self.inner.text_for(self._renamed(), params)

    def render_override(
        self,
        override_body: str,
        params: McpIntegrationParams | None,
        depth: int,
        number: str,
        path: tuple[str, ...] = (),
    ) -> str:
        """Return the section with another template."""
        body = self.inner.text_for(self._renamed(), params, override=override_body)
        return f"{self.format_heading(depth, number, path)}\n\n{body}"

    def original_body_template(self) -> str:
        """Return what an override takes the place of."""
        return self.inner.template or self.render_body(None)

    def resources(self) -> Any:
        """Return the pool, for handlers that call servers by hand."""
        registry = _framework("resources").ResourceRegistry
        return registry.build(dict(self.inner.resources()))

    def connect(self) -> None:
        """Establish connections to all configured servers, or raise and leave none."""
        self._shared.join(self)
        self.inner.connect()

    def cleanup(self) -> None:
        """Leave the connections; they end with the last clone. ``disconnect`` ends them at once."""
        self._shared.leave(self)

    def clone(self, **changes: object) -> Self:
        """Return another section on the same connections, bound to the session it is given."""
        return type(self)(session=changes.get("session", self.session), shared=self._shared)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *error: object) -> None:
        self.inner.disconnect()

    async def __aenter__(self) -> Self:
        self._shared.join(self)
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.inner.__aexit__(None, None, None)

    def _renamed(self) -> tuple[AnyTool, ...]:
        """Return the tools under names and descriptions that the framework takes."""
        found = self.inner.tools()
        if self._shown[0] is not found:
            renamed = tuple(
                replace(tool, name=_lower_name(tool, self.inner), description=_ascii(tool))
                for tool in found
            )
            dressed = tuple(_dressed(tool, self.inner) for tool in renamed)
            self._shown = found, renamed, dressed
        return self._shown[1]


def _framework(module: str) -> Any:
    return import_module(f"weakincentives.{module}")


@cache
def _section_type() -> type:
    """Return the class, or say what it needs: on an older Python the extra installs nothing."""
    if sys.version_info < OLDEST_PYTHON:
        raise ImportError(_needs())
    try:
        prompt = _framework("prompt")
    except ModuleNotFoundError as missing:
        raise ImportError(_needs()) from missing

    class McpIntegrationSection(_Dressed, prompt.Section[McpIntegrationParams]):
        """Connects MCP servers and exposes their tools; ``cleanup`` disconnects."""

    return McpIntegrationSection


def _needs() -> str:
    oldest, this = (".".join(map(str, v)) for v in (OLDEST_PYTHON, sys.version_info[:3]))
    return (
        f"the section inside weakincentives needs Python {oldest} or newer (this is {this}) and "
        "weakincentives 0.27: pip install 'bascule[weakincentives]'"
    )


_PASSED_ON = frozenset({"connected", "disconnect", "servers", "state", "warnings"})


def _dressed(tool: AnyTool, section: Inner) -> Any:
    """Return a bridged tool as one of the framework's."""
    prompt = _framework("prompt")
    params = tool.params_type if _describable(tool.params_type) else McpArguments
    return prompt.Tool[params, McpToolOutput](
        name=tool.name,
        description=tool.description,
        handler=_handler(tool, section, prompt.ToolResult),
        accepts_overrides=tool.accepts_overrides,
    )


def _handler(
    tool: AnyTool, section: Inner, result_type: Callable[..., object]
) -> Callable[..., object]:
    def handler(params: object, *, context: object) -> object:
        del context  # what the framework does with a call, it does itself
        given = params.arguments if isinstance(params, McpArguments) else params
        result = tool.handler(given, context=section.context())
        return result_type(result.message, _output(result), result.success)

    handler.__name__ = handler.__qualname__ = tool.name
    return handler


def _output(result: AnyResult) -> McpToolOutput | None:
    if result.value is None:
        return None
    value = result.value
    structured = value.get("structuredContent") if is_object(value) else value
    return McpToolOutput(result.content, structured, is_error=not result.success)


def _describable(params: type | None) -> bool:
    try:
        _framework("serde").schema(params, extra="forbid")
    except (RecursionError, TypeError):
        return False
    return True


def _lower_name(tool: AnyTool, section: Inner) -> str:
    """Return the name in lower case; one that had capitals is told apart by its hash."""
    if tool.name == tool.name.lower():
        return tool.name
    prefix = next(server.prefix for server in section.servers if server.name == tool.mcp_server)
    return hashed_door_name(prefix, tool.native_name or tool.name).lower()


def _ascii(tool: AnyTool) -> str:
    """Return the description in ASCII, and something where there is none."""
    plain = unicodedata.normalize("NFKD", tool.description)
    text = "".join(c if c.isascii() else "?" for c in plain if not unicodedata.combining(c))
    spare = f"The tool {tool.name} of the server {tool.mcp_server}."
    return (" ".join(text.split()) or spare)[:LONGEST_DESCRIPTION]


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)
