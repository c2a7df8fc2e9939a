"""An effective policy compiled against the tools that are really there.

Below: ``compose.py`` decides on each tool once, ``approval.py`` plans it once. Above: a
session asks ``Access.decide`` before every call: a dictionary look-up. A tool that is not
listed is never allowed, whatever the patterns say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from bascule.model.decision import Decision, deny
from bascule.model.name import spellings
from bascule.model.pattern import PatternSet
from bascule.model.platform import PlatformRecord
from bascule.model.server import Budgets, ServerRecord
from bascule.model.tool import ToolDescriptor
from bascule.policy.approval import ApprovalPlan, plan_approval
from bascule.policy.compose import Effective

Catalogue = Mapping[str, Sequence[ToolDescriptor]]


class Grant(Struct, frozen=True):
    """A tool a session may call, with all that a call of it needs."""

    tool: ToolDescriptor
    record: ServerRecord
    decision: Decision
    budgets: Budgets
    approval: ApprovalPlan
    read: bool
    idempotent: bool


class Access:
    """The tools of a session by name, and the reason for each that it may not have."""

    __slots__ = ("_aliases", "_decisions", "_seen", "effective", "grants")

    def __init__(
        self,
        effective: Effective,
        grants: Mapping[str, Grant],
        decisions: Mapping[str, Decision],
        seen: Sequence[ToolDescriptor],
    ) -> None:
        self.effective = effective
        self.grants = grants
        self._decisions = decisions
        self._seen = seen
        self._aliases: dict[str, str] | None = None

    @property
    def tools(self) -> tuple[ToolDescriptor, ...]:
        """Return the listed tools in their order."""
        return tuple(grant.tool for grant in self.grants.values())

    @property
    def decisions(self) -> Mapping[str, Decision]:
        """Return the decision on every tool of the catalogue, by the name a model uses."""
        return self._decisions

    def decide(self, name: str) -> Decision:
        """Decide on a call by name, in any accepted spelling."""
        found = self._decisions.get(name)
        if found is not None:
            return found
        return self._decisions.get(self._canonical(name)) or _unlisted(self.effective, name)

    def resolve(self, name: str) -> Grant | None:
        """Return the grant for a name in any accepted spelling, if there is one."""
        return self.grants.get(name) or self.grants.get(self._canonical(name))

    def _canonical(self, name: str) -> str:
        if self._aliases is None:
            self._aliases = _alias_table(self.effective, self._seen)
        return self._aliases.get(name, name)


def compile_access(effective: Effective, catalogue: Catalogue) -> Access:
    """Decide on every tool of a catalogue; servers in the policy's order, tools by name."""
    grants: dict[str, Grant] = {}
    decisions: dict[str, Decision] = {}
    seen: list[ToolDescriptor] = []
    for server in effective.servers:
        if not catalogue.get(server):
            continue  # nothing to decide on, of a task with thousands of servers
        gate = effective.gate(server)
        granted = _granter(effective, effective.registry.servers[server])
        for tool in sorted(catalogue[server], key=lambda tool: tool.name):
            seen.append(tool)
            name = tool.model_name
            decision = gate(tool.name)
            if name in decisions:
                decision = deny(server, tool.name, "platform", "name_collision", name)
                grants.pop(name, None)
            decisions[name] = decision
            if decision.allowed:
                grants[name] = granted(tool, decision)
    return Access(effective, grants, decisions, seen)


def _granter(
    effective: Effective, record: ServerRecord
) -> Callable[[ToolDescriptor, Decision], Grant]:
    """Return a function that makes the grants of one server; what they share is made once."""
    platform = effective.registry.platform
    budgets = platform.ceilings.lower(record.budgets)
    read, idempotent = PatternSet(record.effects.read), PatternSet(record.effects.idempotent)
    server = record.server_id
    plan = _planner(platform, record)

    def grant(tool: ToolDescriptor, decision: Decision) -> Grant:
        reads = read.first(server, tool.name) is not None
        again = reads or idempotent.first(server, tool.name) is not None
        return Grant(tool, record, decision, budgets, plan(tool.name), reads, again)

    return grant


def _planner(platform: PlatformRecord, record: ServerRecord) -> Callable[[str], ApprovalPlan]:
    """Return the planner of one server; where nothing depends on the tool, one plan serves all."""
    if platform.rules or record.approval_policy.rules or record.approval_policy.per_tool:
        return lambda tool: plan_approval(platform, record, tool)
    shared = plan_approval(platform, record, "")
    return lambda tool: shared


def _alias_table(effective: Effective, tools: Sequence[ToolDescriptor]) -> dict[str, str]:
    """Map the other spellings back to names; one that could mean two tools means neither."""
    table: dict[str, str] = {}
    ambiguous: set[str] = set()
    for tool in tools:
        namespace = effective.registry.servers[tool.server_id].tool_namespace
        for alias in set(spellings(tool.server_id, namespace, tool.name)):
            if table.setdefault(alias, tool.model_name) != tool.model_name:
                ambiguous.add(alias)
    return {alias: name for alias, name in table.items() if alias not in ambiguous}


def _unlisted(effective: Effective, name: str) -> Decision:
    """Say why a name that is in no list is denied, as far as it can be told."""
    server, tool = guess_target(effective, name)
    verdict = effective.decide(server, tool)
    if not verdict.allowed:
        return verdict
    return deny(server, tool, "platform", "unknown_tool", "tools/list")


def guess_target(effective: Effective, name: str) -> tuple[str, str]:
    """Read a server and a tool out of a name, to explain it; calls are never routed by this."""
    for server, record in effective.registry.servers.items():
        dotted = record.tool_namespace + "."
        for prefix in (dotted.replace(".", "__"), dotted, f"mcp.{server}.", f"{server}/"):
            if name.startswith(prefix):
                return server, name[len(prefix) :]
    parts = name.replace("/", ".").replace("__", ".").removeprefix("mcp.").split(".", 1)
    return parts[0], parts[1] if len(parts) > 1 else ""
