"""How tools and outcomes look at the tools API.

Below: the bridge's own objects. Above: ``api.py`` and ``progress.py``; ``bascule.client.tools``
reads what this writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bascule.model.outcome import Outcome, shown_error
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.toolset import ToolSet, harmless
from bascule.policy.explain import Explanation


def tools_object(
    tools: ToolSet,
    explanations: Iterable[Explanation] | None = None,
    *,
    definitions: bool = False,
) -> dict[str, Any]:
    """Return a tool set as plain values, its prose made harmless for a model."""
    shown = zip(tools, tools.anthropic(), strict=True)
    plain: dict[str, Any] = {
        "revision": tools.revision,
        "tools": [{**entry, **_more(tool, definitions=definitions)} for tool, entry in shown],
        "warnings": list(tools.warnings),
    }
    if explanations is not None:
        plain["explanations"] = [explanation.plain() for explanation in explanations]
    return plain


def _more(tool: ToolDescriptor, *, definitions: bool) -> dict[str, Any]:
    """Return what is said of a tool beside what a model is shown."""
    plain = {
        "server": tool.server_id,
        "tool": tool.name,
        "output_schema": harmless(tool.output_schema),
        "annotations": harmless(tool.annotations),
        "digest": tool.digest,
    }
    return {**plain, "definition": harmless(tool.definition)} if definitions else plain


def outcome_object(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values: the same fields whatever came of the call.

    A result that was cut is ``ok`` and says in ``error`` that it was cut.
    Warnings are the exception: only an outcome that has some shows them.
    """
    plain = {
        "ok": outcome.ok,
        "text": outcome.text,
        "structured": outcome.structured,
        "content": outcome.content,
        "error": msgspec.to_builtins(shown_error(outcome)),
        "truncated": outcome.truncated,
        "request_id": outcome.request_id,
        "revision": outcome.revision,
    }
    return {**plain, "warnings": outcome.warnings} if outcome.warnings else plain
