"""An effective policy compiled against the tools that are really there.

A tool that is not listed is never allowed, whatever the patterns say; nor is one that a task's
``max_tools`` leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from bascule.model.decision import Decision, deny
from bascule.model.pattern import PatternSet
from bascule.model.platform import PlatformRecord
from bascule.model.server import Budgets, ServerRecord
from bascule.model.tool import ToolDescriptor
from bascule.policy.approval import ApprovalPlan, plan_approval
from bascule.policy.compose import Effective
from bascule.policy.naming import Names, named_server

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

    __slots__ = ("_listed", "_names", "decisions", "effective", "grants", "seen")

    def __init__(
        self,
        effective: Effective,
        grants: Mapping[str, Grant],
        decisions: Mapping[str, Decision],
        seen: Sequence[ToolDescriptor],
        listed: frozenset[str],
    ) -> None:
        self.effective = effective
        self.grants = grants
        #: The decision on every tool of the catalogue, by the name a model uses, and those tools.
        self.decisions = decisions
        self.seen = seen
        self._listed = listed
        self._names: Names | None = None

    @property
    def tools(self) -> tuple[ToolDescriptor, ...]:
        """Return the listed tools in their order."""
        return tuple(grant.tool for grant in self.grants.values())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what people should know of the list as a whole."""
        reasons = [decision.reason for decision in self.decisions.values()]
        cut, most = reasons.count("over_max_tools"), self.effective.bounds.max_tools
        if not cut:
            return ()
        how = f"{cut} of {len(self.grants) + cut} tools are left out, as mcp.max_tools is {most}"
        return (f"{how}: raise it, or choose with mcp.tool_allowlist, whose order counts",)

    def decided(self, tool: ToolDescriptor) -> Decision:
        """Return the decision on a tool, also where its server is out of play as a whole."""
        found = self.decisions.get(tool.model_name)
        return found or self.effective.decide(tool.server_id, tool.name)

    def decide(self, name: str) -> Decision:
        """Decide on a call by name, in any accepted spelling."""
        found = self.decisions.get(name)
        if found is not None:
            return found
        meant = self._meant(name)
        if len(meant) == 1:
            return self.decisions[meant[0]]
        if meant:
            usable = ", ".join(known for known in meant if known in self.grants)
            return deny("", name, "platform", "ambiguous_name", usable)
        return self._unlisted(name)

    def resolve(self, name: str) -> Grant | None:
        """Return the grant for a name in any accepted spelling, if there is one."""
        found = self.grants.get(name)
        if found is not None or name in self.decisions:
            return found
        meant = self._meant(name)
        return self.grants.get(meant[0]) if len(meant) == 1 else None

    def _meant(self, name: str) -> tuple[str, ...]:
        if self._names is None:
            servers = self.effective.registry.servers
            self._names = Names(servers, self.seen, self.grants.keys())
        return self._names.meant(name)

    def _unlisted(self, name: str) -> Decision:
        """Say why a name that is in no list is denied, as far as it can be told."""
        server, tool = guess_target(self.effective, name)
        if server:
            verdict = self.effective.decide(server, tool)
            if verdict.vetoes_name or (server not in self._listed and not verdict.allowed):
                return verdict
        return deny(server, tool, "platform", "unknown_tool", "tools/list")


def compile_beside(effective: Effective, catalogue: Catalogue, others: Catalogue) -> Access:
    """Decide on every tool of a catalogue, where tools of others take places under the cap too."""
    whole = compile_access(effective, {**others, **catalogue})
    own = {name: made for name, made in whole.decisions.items() if made.server in catalogue}
    return Access(
        effective,
        {name: grant for name, grant in whole.grants.items() if name in own},
        own,
        [tool for tool in whole.seen if tool.server_id in catalogue],
        frozenset(catalogue),
    )


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
    kept = _capped(effective, grants, decisions)
    listed = frozenset(server for server in effective.servers if server in catalogue)
    return Access(effective, kept, decisions, seen, listed)


def _capped(
    effective: Effective, grants: dict[str, Grant], decisions: dict[str, Decision]
) -> dict[str, Grant]:
    """Return at most as many grants as the task offers, in their order; say no to the rest.

    First come the tools that stand first in the allowlists, then those that read, then by name.
    """
    most = effective.bounds.max_tools
    if most is None or len(grants) <= most:
        return grants
    lists = [source.allow for source in effective.filters if source.allow is not None]

    def rank(name: str) -> tuple[object, ...]:
        grant = grants[name]
        tool = grant.tool
        places = tuple(allow.place(tool.server_id, tool.name) for allow in lists)
        return (places, not grant.read, name)

    for name in sorted(grants, key=rank)[most:]:
        tool = grants[name].tool
        rule = f"mcp.max_tools = {most}"
        decisions[name] = deny(tool.server_id, tool.name, "task", "over_max_tools", rule)
    return {name: grant for name, grant in grants.items() if decisions[name].allowed}


def _granter(
    effective: Effective, record: ServerRecord
) -> Callable[[ToolDescriptor, Decision], Grant]:
    """Return a function that makes the grants of one server; what they share is made once."""
    platform = effective.registry.platform
    budgets = platform.ceilings.lower(record.budgets)
    classed, plan = classifier(record), planner(platform, record)

    def grant(tool: ToolDescriptor, decision: Decision) -> Grant:
        return Grant(tool, record, decision, budgets, plan(tool.name), *classed(tool.name))

    return grant


def classifier(record: ServerRecord) -> Callable[[str], tuple[bool, bool]]:
    """Return what classes a server's tools by its record: does one read, is it idempotent?"""
    read, idempotent = PatternSet(record.effects.read), PatternSet(record.effects.idempotent)
    server = record.server_id

    def classed(tool: str) -> tuple[bool, bool]:
        reads = read.first(server, tool) is not None
        return reads, reads or idempotent.first(server, tool) is not None

    return classed


def planner(platform: PlatformRecord, record: ServerRecord) -> Callable[[str], ApprovalPlan]:
    """Return the planner of one server; where nothing depends on the tool, one plan serves all."""
    if platform.rules or record.approval_policy.rules or record.approval_policy.per_tool:
        return lambda tool: plan_approval(platform, record, tool)
    shared = plan_approval(platform, record, "")
    return lambda tool: shared


def guess_target(effective: Effective, name: str) -> tuple[str, str]:
    """Read a server and a tool out of a name, to explain it; calls are never routed by this.

    The server is empty where the name says none that is known.
    """
    return named_server(effective.registry.servers, name) or ("", name)
