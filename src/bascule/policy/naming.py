"""Which tool a caller means: every spelling, from exact tables; what is in doubt means nothing.

A name that says its server (``mcp__s__t``, ``mcp.s.t``, ``s/t``, ``s.t``) is looked up as such. A
bare tool name means the one tool of that name that the caller may use; it is never read in place of
a spelling that names a known server, lest one server's tool answers for another's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

import msgspec

from bascule.model.decision import Decision
from bascule.model.name import prefixes, spellings
from bascule.model.outcome import Failure, failure
from bascule.model.server import ServerRecord
from bascule.model.tool import ToolDescriptor

#: To look for names that are near costs time, which is not spent on more than that.
MAX_COMPARED = 1024
_LONGEST = 128
_LONGEST_TEXT = 2048
_NEAR = 0.6
_MOST_NAMED = 5


class Names:
    """The spellings of a session's tools."""

    def __init__(
        self,
        servers: Mapping[str, ServerRecord],
        seen: Sequence[ToolDescriptor],
        granted: Collection[str],
    ) -> None:
        self._servers = servers
        self._granted = granted
        self._spelled: dict[str, dict[str, None]] = {}
        self._bare: dict[str, dict[str, None]] = {}
        for tool in seen:
            namespace = servers[tool.server_id].tool_namespace
            for spelling in spellings(tool.server_id, namespace, tool.name):
                self._spelled.setdefault(spelling, {})[tool.model_name] = None
            self._bare.setdefault(tool.name, {})[tool.model_name] = None

    def meant(self, name: str) -> tuple[str, ...]:
        """Return the names that models use for what a caller may mean; one, if it is clear."""
        found = self._spelled.get(name)
        if found is not None:
            return tuple(found)
        if named_server(self._servers, name) is not None:
            return ()
        bare = tuple(self._bare.get(name, ()))
        usable = tuple(known for known in bare if known in self._granted)
        return usable or bare[:1]


def named_server(servers: Mapping[str, ServerRecord], name: str) -> tuple[str, str] | None:
    """Return the known server that a name says, and the rest of it; the longest match counts."""
    found = ""
    target: tuple[str, str] | None = None
    for server, record in servers.items():
        for prefix in prefixes(server, record.tool_namespace):
            if len(prefix) > len(found) and name.startswith(prefix):
                found, target = prefix, (server, name[len(prefix) :])
    return target


def nearest(name: str, tools: Iterable[ToolDescriptor], count: int = 3) -> tuple[str, ...]:
    """Return the model's names of tools that somebody who wrote this may have meant."""
    known = list(tools)[:MAX_COMPARED]
    wanted = name[:_LONGEST]
    short = wanted.replace("__", "/").replace(".", "/").rpartition("/")[2]
    near = get_close_matches(wanted, [tool.model_name for tool in known], count, _NEAR)
    own = get_close_matches(short, list({tool.name for tool in known}), count, _NEAR)
    near += [tool.model_name for name in own for tool in known if tool.name == name]
    return tuple(dict.fromkeys(near))[:count]


def no_such_tool(
    decision: Decision, tools: Iterable[ToolDescriptor], unlisted: Sequence[str] = ()
) -> Failure:
    """Return the failure of a call by a name that means no tool, or more than one.

    ``tools`` are those that the caller may see: no other is ever named. ``unlisted`` are servers
    of the caller's that have not said what they have.
    """
    ambiguous = decision.reason == "ambiguous_name"
    name = "/".join(filter(None, (decision.server, decision.tool)))
    near = decision.rule.split(", ") if ambiguous else [*nearest(name, tools)]
    one = "write one of" if ambiguous else "did you mean"
    hint = f"; {one} {', '.join(near)}{'' if ambiguous else '?'}" if near else ""
    details = {
        "reason": decision.reason,
        "decision": msgspec.to_builtins(decision),
        "did_you_mean": near,
    }
    text = f"{decision}{hint}{_silence(unlisted)}"[:_LONGEST_TEXT]
    return failure("mcp_invalid_arguments", text, details=details)


def _silence(unlisted: Sequence[str]) -> str:
    """Say of which servers nothing is known."""
    if not unlisted:
        return ""
    named = ", ".join(sorted(unlisted)[:_MOST_NAMED])
    rest = len(unlisted) - _MOST_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"; {named}{more} {'has' if len(unlisted) == 1 else 'have'} not listed " + (
        "its tools" if len(unlisted) == 1 else "their tools"
    )
