"""Sections and the prompts made of them: text for a model, and the tools that go with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from bascule.section.errors import McpConfigError
from bascule.section.runtime import AnyTool, OnProgress, Resources, ToolContext
from bascule.section.session import Session

P = TypeVar("P")
_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Section(Generic[P]):
    """A part of a prompt: a heading, a text, and tools."""

    def __init__(
        self,
        *,
        title: str,
        key: str,
        default_params: P | None = None,
        accepts_overrides: bool = False,
    ) -> None:
        if not title.strip():
            raise McpConfigError("a section needs a title")
        self.title = title
        self.key = checked_key(key)
        self.default_params = default_params
        self.accepts_overrides = accepts_overrides

    def tools(self) -> tuple[AnyTool, ...]:
        return ()

    def resources(self) -> Mapping[type, Any]:
        """Return what its tools may use, by type."""
        return {}

    def render_body(self, params: P | None = None, *, override: str | None = None) -> str:
        """Return the text below the heading; ``override`` takes the place of its template."""
        raise NotImplementedError

    def render(self, params: P | None = None, *, override: str | None = None) -> str:
        """Return the section as Markdown."""
        if override is not None and not self.accepts_overrides:
            raise McpConfigError(
                f"section {self.key!r} accepts no overrides: accepts_overrides is False"
            )
        given = self.default_params if params is None else params
        body = self.render_body(given, override=override)
        return f"## {self.title}\n\n{body}" if body else f"## {self.title}"


@dataclass(slots=True, frozen=True)
class RenderedPrompt:
    """A prompt, ready for a model."""

    text: str
    tools: tuple[AnyTool, ...]


class PromptTemplate(Generic[P]):
    """Sections under one key. The tools are gathered when it is made, so connect first."""

    def __init__(self, *, ns: str, key: str, sections: Sequence[Section[Any]]) -> None:
        self.ns = checked_key(ns)
        self.key = checked_key(key)
        self.sections = tuple(sections)
        _unique([section.key for section in self.sections], "section key")
        self.tools = tuple(tool for section in self.sections for tool in section.tools())
        _unique([tool.name for tool in self.tools], "tool")

    def render(
        self,
        params: Mapping[str, Any] | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
    ) -> RenderedPrompt:
        """Return the text and the tools; ``params`` and ``overrides`` go by a section's key."""
        given, replaced = params or {}, overrides or {}
        known = {section.key for section in self.sections}
        unknown = sorted({*given, *replaced} - known)
        if unknown:
            raise McpConfigError(f"no section has the key {unknown[0]!r}")
        texts = [
            section.render(given.get(section.key), override=replaced.get(section.key))
            for section in self.sections
        ]
        return RenderedPrompt("\n\n".join(texts), self.tools)

    def context(self, session: Session, *, on_progress: OnProgress | None = None) -> ToolContext:
        """Return what a tool of this prompt is called with."""
        found: dict[type, Any] = {}
        for section in self.sections:
            for kind, resource in section.resources().items():
                found[kind] = resource if kind not in found else _joined(found[kind], resource)
        return ToolContext(session, Resources(found), on_progress)


@runtime_checkable
class Joinable(Protocol):
    """A resource that several sections may bring."""

    def joined(self, other: object, /) -> object: ...


def _joined(one: object, other: object) -> object:
    if not isinstance(one, Joinable):
        raise McpConfigError(f"two sections bring a {type(one).__name__}")
    return one.joined(other)


def checked_key(key: str) -> str:
    """Return a key, or raise when it is none."""
    if not _KEY.fullmatch(key):
        raise McpConfigError(
            f"the key {key!r} must be a letter or digit and up to 63 of a-z 0-9 . _ -"
        )
    return key


def _unique(names: Sequence[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise McpConfigError(f"the {what} {name!r} is there twice; give one of them a prefix")
