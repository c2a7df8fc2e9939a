"""The text of the section: which tools there are, or a template of the host's own.

A template's variables are ``${name}``, with braces; each is replaced once, every other dollar stays
as it is, and what is put in is not looked at again. So neither a price nor a description can start
a substitution.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from textwrap import dedent

from bascule.section.runtime import AnyTool

INTRODUCTION = "The following external tools are available via MCP:"
LONGEST_DESCRIPTION = 200
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

ToolsByServer = Mapping[str, Sequence[AnyTool]]


def shortened(description: str) -> str:
    """Return a description as a tool shows it."""
    return description.strip()[:LONGEST_DESCRIPTION]


def inventory(tools: ToolsByServer) -> str:
    """Return the tools of every server that has any, as Markdown."""
    parts = [INTRODUCTION]
    for server, found in tools.items():
        if found:
            parts += [f"### {server}", "\n".join(_line(tool) for tool in found)]
    return "\n\n".join(parts)


def filled(template: str, tools: ToolsByServer, more: Mapping[str, object]) -> str:
    """Return a template with its variables replaced; ``more`` adds to them, never overrides."""
    names = {server: [tool.name for tool in found] for server, found in tools.items()}
    values = {
        **{name: str(value) for name, value in more.items()},
        "server_names": ", ".join(tools),
        "tool_count": str(sum(map(len, tools.values()))),
        "tools_by_server": json.dumps(names, ensure_ascii=False),
    }
    text = dedent(template).strip()
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def _line(tool: AnyTool) -> str:
    """Return one entry of the list; a description of several lines must not end the list."""
    description = " ".join(tool.description.split())
    return f"- `{tool.name}` - {description}" if description else f"- `{tool.name}`"
