"""A session: what one caller may use, and the calls it makes.

``call.py`` carries each call; ``bascule.policy`` decides what is in the table. A session follows
the registry: when a snapshot or a tool list changes, its table is made anew before the next call;
when nothing changed, nothing is rebuilt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from msgspec.structs import replace

from bascule.errors import BasculeError, ServerUnavailable, SessionRefused
from bascule.lifetime import Lifetime
from bascule.model.approval import Approving
from bascule.model.call import (
    NO_LIMITS,
    NOTHING_BESIDE,
    Beside,
    CallLimits,
    LimitOptions,
    OnProgress,
)
from bascule.model.decision import Decision
from bascule.model.explanation import Explanation
from bascule.model.outcome import Failure, Outcome
from bascule.model.server import Budgets
from bascule.model.status import Change, ServerStatus
from bascule.model.task import DEFAULT_MAX_TOOLS, TaskBudgets, TaskPolicy, TaskRecord
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.announcements import announce, announce_list
from bascule.node.bridge.call import call
from bascule.node.bridge.listings import Listings
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.outputs import Outputs
from bascule.node.bridge.own_call import note_own, noted
from bascule.node.bridge.record import declined
from bascule.node.bridge.refusal import Refused, denied, misnamed, refuse, refused_since
from bascule.node.bridge.shown_tools import ShownTools
from bascule.node.bridge.spending import Spending
from bascule.node.bridge.table import Target
from bascule.node.bridge.toolset import ToolSet
from bascule.node.changes import OnChange, Unsubscribe
from bascule.node.sharing import Shares
from bascule.policy.access import Access, compile_access, guess_target
from bascule.policy.budget import Budget
from bascule.policy.compose import Effective, compose
from bascule.policy.explain import explain, with_failure
from bascule.wire.api.tools import OwnCallBody
from bascule.wire.faults import failure_of

if TYPE_CHECKING:
    from bascule.node.bridge.core import BridgeCore

#: Says whether whoever opened a session may still use it; asked again after every wait of a call.
Standing = Callable[[], Awaitable[bool]]


class Session(Lifetime):
    """One caller's way across the bridge. Made by ``Bridge.session``; ready to use."""

    def __init__(
        self,
        core: BridgeCore,
        session_id: str,
        opening: Opening,
        task: TaskRecord | TaskPolicy | None,
        standing: Standing | None,
    ) -> None:
        self.core = core
        self.session_id = session_id
        self.caller = opening.caller
        self.token_id = opening.token_id
        self.person = opening.person
        self._acting = opening.acting
        self.maker = opening.maker
        self.digest_key = core.ledger.digest_key
        self.task_id = task.task_id if isinstance(task, TaskRecord) else None
        self._task = task
        self._registered = self.task_id in core.snapshot.tasks
        self._requests = opening.requests
        self._calls = 0
        self._refusal: SessionRefused | None = None
        self._listings = Listings(core, session_id)
        self._closed = False
        self._standing = standing
        #: Who waits in line for a place: a token, whoever it speaks for; and whose calls they are.
        self.line = opening.token_id or opening.caller or session_id
        self.whose = opening.whose or session_id
        self.shares = Shares(session_id, self.task_id, opening.user)
        self.spending = Spending(opening.limits)
        self.outputs = Outputs(session_id)
        self.builds = 0
        self._opened = False
        #: The task's policy as the registry has it now.
        self.policy: TaskPolicy | None = None
        #: What one call may give at most, by the task and by the session itself.
        self.max_tool_output_bytes: int | None = None
        self._snapshot = core.snapshot
        self.effective: Effective = self._composed()
        #: The registry revision that decides for this session.
        self.revision = self.effective.revision
        self._epoch = core.caller.epoch
        self._access: Access = compile_access(self.effective, {})
        self._table: dict[str, Target] = {}
        self._made_for: Effective | None = None
        self._made_of: tuple[tuple[str, tuple[ToolDescriptor, ...]], ...] = ()
        self._shown = ShownTools(core)
        self._opened = True
        announce(self)

    @property
    def budget(self) -> Budget:
        """Return what the session has used, against its limits."""
        return self.spending.budget

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Return the decision log, with the node's own layer at the end."""
        return (*self.effective.decisions, *self._listings.failures.values())

    async def budgets(self) -> TaskBudgets:
        """Return what the task leaves to one conversation, as the registry has it now."""
        self._follow_registry()
        return TaskBudgets() if self.policy is None else self.policy.budgets

    def is_enabled(self) -> bool:
        """Say whether MCP is on, by the task and by this session; raise SessionRefused.

        What was allowed when the session was opened may be refused by the registry as it is now.
        """
        self._follow_registry()
        if self._refusal is not None:
            raise self._refusal
        return self.effective.bounds.enabled and self.effective.session.enabled

    async def tools(self, *, unseen: bool = False) -> ToolSet:
        """List the tools. A server that cannot list contributes nothing but a warning.

        One that hangs is not waited for where others have listed: it is there as soon as it is up.
        What stays ``unseen`` is not written down as shown.
        """
        self._follow_registry()
        servers = self.effective.servers
        problems = await self._listings.bring_all(servers)
        self._rebuild()
        tools, masked = self._shown.of(self._access)
        warnings = (*self._warnings([problems.get(s) for s in servers]), *masked)
        if not unseen:
            announce_list(self, self._listings.failures, len(self._access.grants), warnings)
        return self._shown.listed(tools, self.revision, warnings, self._wanted_and_denied())

    def known_tools(self) -> ToolSet:
        """Return the tools as far as they are known, without asking or waiting for any server."""
        self._follow_registry()
        problems = (f"{s}: {f.reason}: {f.rule}" for s, f in self._listings.failures.items())
        return ToolSet(
            self._access.tools,
            revision=self.revision,
            warnings=self._warnings(problems),
            denials=self._wanted_and_denied(),
        )

    def _wanted_and_denied(self) -> tuple[Decision, ...]:
        """Return why servers that this session asks for have no tools in it."""
        return (*self.effective.denied, *self._listings.failures.values())

    def call(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        limits: CallLimits = NO_LIMITS,
        on_progress: OnProgress | None = None,
        approval: Approving = "wait",
        **own: Unpack[LimitOptions],
    ) -> Coroutine[object, None, Outcome]:
        """Call a tool by the name a model uses; every failure comes back as an outcome.

        Limits, as a value or as keywords, may only lower what the server's record gives. Where it
        needs approval, ``approval="return"`` does not wait for that: the outcome has the id.
        """
        limits = replace(limits, **own) if own else limits
        beside = NOTHING_BESIDE if on_progress is None else Beside(on_progress=on_progress)
        return call(self, name, arguments, limits, beside, approval)

    def call_beside(
        self,
        name: str,
        arguments: Mapping[str, object] | None,
        beside: Beside,
        approval: Approving = "return",
    ) -> Coroutine[object, None, Outcome]:
        """Call a tool for somebody who hears of more than progress, or has a trace."""
        return call(self, name, arguments, NO_LIMITS, beside, approval)

    def explain(self, name: str) -> Explanation:
        """Explain a tool or a server: readable when printed, an object when used."""
        self._follow_registry()
        server, _ = guess_target(self.effective, name)
        listed = not server or name in self._table or server in self._listings
        found = explain(self._access if listed else self.effective, name)
        failure = self._listings.failures.get(found.server)
        return found if failure is None else with_failure(found, failure)

    def explanations(self) -> tuple[Explanation, ...]:
        """Explain every server that was considered, and every tool that was listed."""
        self._follow_registry()
        servers = (decision.server for decision in self.effective.decisions)
        hidden = {t.model_name for t in self._access.seen if self.core.names_credential(t)}
        tools = (name for name in self._access.decisions if name not in hidden)
        return tuple(self.explain(name) for name in (*servers, *tools))

    async def explanation(self, name: str) -> Explanation:
        """Explain a tool or a server; its own server is listed for that, and no other."""
        await self.look_up(name)
        return self.explain(name)

    async def output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut.

        It is cleaned as far as it is read; other work goes on between slices. Raise KeyError when
        it is gone, ToolError from where a credential stands that may not pass.
        """
        while self.outputs.advance(handle, start, end):
            await self.core.clock.sleep(0)
        return self.read_output(handle, start, end)

    def read_output(self, handle: str, start: int = 0, end: int | None = None) -> str:
        """Read bytes ``start`` to ``end`` of an output that was cut, at once."""
        return self.outputs.read(handle, start, end)

    def instructions(self) -> Mapping[str, str]:
        """Return what servers say about their use, by server, as far as it is known: untrusted."""
        self._follow_registry()
        return self._listings.instructions(self.effective.servers)

    def statuses(self) -> list[ServerStatus]:
        """Return how the connections of the session's servers stand."""
        self._follow_registry()
        servers = self.effective.servers
        return self.shares.own(one for one in self.core.statuses() if one.server_id in servers)

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function for each change of the session's servers, their tools or the records."""

        def own(change: Change) -> None:
            concerned = not change.server_id or change.server_id in self.effective.servers
            if concerned and self.shares.hears(change) and not self._closed:
                on_change(change)

        return self.core.subscribe(own)

    async def reconnect(self, server_id: str) -> None:
        """Tear down and reconnect one of the session's servers; raise what goes wrong."""
        self._follow_registry()
        if server_id not in self.effective.servers:
            raise ServerUnavailable(f"{server_id!r} is not a server of this session")
        await self.core.reconnect(server_id)

    async def close(self) -> None:
        """End the session: its own connections are closed, its outputs are gone."""
        if not self._closed:
            self._closed = self._listings.closed = True
            self.outputs.clear()
            await self.core.caller.release(self.session_id)

    def lookup(self, name: str) -> Target | None:
        """Return the target of a name when nothing has changed since the table was made."""
        if self.core.distrust is not None and self.core.distrust() is not None:
            return None
        if self._epoch != self.core.caller.epoch or self._snapshot is not self.core.snapshot:
            return None
        target = self._table.get(name)
        if self._closed or target is None or target.server_id in self._listings.stale:
            return None
        return target

    async def resolve(self, name: str) -> Target:
        """Return the target of a name, from the table and from nothing else."""
        self._refuse_if_over()
        if self._epoch != self.core.caller.epoch or self._snapshot is not self.core.snapshot:
            self._catch_up()
        target = self._table.get(name)
        if target is not None and target.server_id in self._listings.stale:
            await self._refetch(target.server_id)
            await self._look_again()
            target = self._table.get(name)
        return target if target is not None else await self._find(name)

    async def current(self, target: Target) -> Target:
        """Return what a target is after a wait; raise when it may not be called any more."""
        await self._look_again()
        try:
            return await self.resolve(target.grant.tool.model_name)
        except Refused as refusal:
            gone = refusal.decision
            if gone is None or not gone.names_nothing:
                raise
            raise denied(gone) from None  # it was there: nobody misspelt it

    def decline(
        self, name: str, arguments: Mapping[str, object] | None, problem: Failure
    ) -> Outcome:
        """Write down a call that a door does not make, and return it as failed."""
        return declined(self, name, arguments, problem)

    async def note_own(
        self, name: str, arguments: Mapping[str, object] | None, outcome: Outcome, seconds: float
    ) -> Outcome:
        """Write down and count a call of a tool that is the caller's own; return it with its id."""
        call = note_own(self, OwnCallBody.of(name, arguments, outcome, seconds))
        return noted(outcome, call.request_id, call.revision)

    def next_request_id(self) -> str:
        """Return the id of the next call."""
        self._calls += 1
        return f"{self.session_id}-{self._calls}"

    def _refuse_if_over(self) -> None:
        if self._closed:
            raise refuse("mcp_unavailable", "the session is closed")
        self.core.refuse_distrusted()

    async def _look_again(self) -> None:
        """After a wait: what was known before it may be out of date."""
        if self._standing is not None and not await self._standing():
            raise refuse("mcp_policy_denied", "the caller's token was revoked or has expired")
        self._refuse_if_over()
        self._follow_registry()

    async def look_up(self, name: str) -> None:
        """List what a name can be explained with: its server alone, if it is or names one."""
        self._catch_up()
        named = name in self.effective.registry.servers
        server = name if named else guess_target(self.effective, name)[0]
        servers = self.effective.servers
        if server:
            servers = (server,) if server in servers else ()

        def found() -> bool:
            self._rebuild()
            return self._access.resolve(name) is not None

        await self._listings.bring_until(found, self._listings.unknown(servers))
        self._rebuild()

    def _warnings(self, problems: Iterable[str | None]) -> list[str]:
        """Return what is doubtful about the tools: of the policy, and of each server."""
        of_lists = self._listings.warnings(self.effective.servers)
        policy = (*self.effective.warnings, *self._access.warnings)
        return [*policy, *filter(None, problems), *of_lists]

    async def _find(self, name: str) -> Target:
        """Find a name the table does not have: another spelling, or a server not listed yet."""
        if self._refusal is not None:
            raise refused_since(self._refusal)
        server, _ = guess_target(self.effective, name)
        await self._list_for(name)
        await self._look_again()
        if self._refusal is not None:
            raise refused_since(self._refusal)
        grant = self._access.resolve(name)
        if grant is not None:
            target = self._table[grant.tool.model_name]
            if server:  # so it means this tool until the table is made anew
                self._table[name] = target
            return target
        decision = self._access.decide(name)
        failure = self._down(decision)
        if failure is not None:
            down = ServerUnavailable(failure.rule, reason=failure.reason)
            raise Refused(failure_of(down), failure)
        gone = bool(server) and server not in self._snapshot.servers
        if decision.names_nothing and not gone:  # what was there when it was asked is no slip
            unlisted = () if decision.server else tuple(self._listings.failures)
            raise misnamed(decision, self._access.tools, unlisted)
        raise denied(decision)

    def _down(self, decision: Decision) -> Decision | None:
        """Return why it cannot be told whether there is such a tool, if so."""
        if decision.reason != "unknown_tool":
            return None
        if not decision.server and not self._listings:
            return next(iter(self._listings.failures.values()), None)
        return self._listings.failures.get(decision.server)

    async def _list_for(self, name: str) -> None:
        """List what must be known to say what a name means, and nothing else."""
        server, tool = guess_target(self.effective, name)
        if server in self._listings.stale:
            await self._refetch(server)
        wanted = [one for one in self._needed(server, tool) if one not in self._listings]
        if server in wanted:
            seconds = self._budgets(server).tool_timeout_ms / 1000
            await self._listings.bring_within(seconds, server)
        others = [one for one in wanted if one != server]
        if others:
            await self._listings.bring_all(others)
        if wanted:
            self._rebuild()

    def _needed(self, server: str, tool: str) -> tuple[str, ...]:
        """Return the servers to be listed for a tool: its own, or all where a name says none."""
        bounds, servers = self.effective.bounds, self.effective.servers
        if not server:  # a model's name for a server that is not there is no tool's own name
            return () if tool.startswith(("mcp__", "mcp.")) else servers
        # What a layer vetoes by name is denied in any case; a name that no list covers may be a
        # slip. A tool with "__" may stand under a hash: its own name is not known before the list.
        vetoed = self.effective.decide(server, tool).vetoes_name and "__" not in tool
        if server not in servers or vetoed:
            return ()
        # Which tools a cap leaves out depends on all; for the usual one, what is known will do.
        return (server,) if bounds.max_tools in (None, DEFAULT_MAX_TOOLS) else servers

    def _budgets(self, server: str) -> Budgets:
        registry = self.effective.registry
        return registry.platform.ceilings.lower(registry.servers[server].budgets)

    def delay_of(self, name: str) -> str:
        """Return what the server that a name seems to mean is doing instead of answering."""
        server, _ = guess_target(self.effective, name)
        words = self.core.caller.progress(server, self.session_id)
        return f" ({words}; that goes on)" if words else ""

    def _catch_up(self) -> None:
        """Note what changed since the table was made; lists are looked at when they are used."""
        if self._epoch != self.core.caller.epoch:
            self._epoch = self.core.caller.epoch
            self._listings.doubt()
        self._follow_registry()

    async def _refetch(self, server: str) -> None:
        """Take a newer list if there is one; a server in trouble keeps its old list for now."""
        epoch = self._epoch
        try:
            await self._listings.renew(server)
            self._rebuild()
        except BasculeError:
            return
        finally:
            if self._epoch == epoch:
                self._listings.stale.discard(server)

    def _follow_registry(self) -> None:
        if self._snapshot is not self.core.snapshot:
            self._snapshot = self.core.snapshot
            self.effective = self._composed()
            self.revision = self.effective.revision
            self._listings.keep(self.effective.servers)
            self._rebuild()

    def _composed(self) -> Effective:
        """Compose the policy; a task that now refuses this session leaves it with nothing."""
        task = self._task
        if self._registered and isinstance(task, TaskRecord):
            # A task that was removed takes what it allowed with it.
            task = self._snapshot.tasks.get(task.task_id, TaskPolicy())
        self._note_policy(task.mcp if isinstance(task, TaskRecord) else task)
        who, acting, where = self.person, self._acting, self.core.environment
        try:
            self._refusal = None
            return compose(
                self._snapshot, task, *self._requests, environment=where, person=who, acting=acting
            )
        except SessionRefused as refusal:
            if not self._opened:
                raise
            self._refusal = refusal
            self.core.note_refused(
                refusal,
                task_id=self.task_id,
                caller=self.caller,
                token_id=self.token_id,
                person=self.person,
                session_id=self.session_id,
            )
            return replace(compose(self._snapshot, TaskPolicy()), warnings=(str(refusal),))

    def _note_policy(self, policy: TaskPolicy | None) -> None:
        self.policy = policy
        layers = self._requests if policy is None else (*self._requests, policy)
        caps = [layer.max_tool_output_bytes for layer in layers]
        self.max_tool_output_bytes = min((cap for cap in caps if cap is not None), default=None)

    def _rebuild(self) -> None:
        """Make the table anew if what it was made of has changed."""
        catalogue = self._listings.catalogue()
        made_of = tuple(catalogue.items())
        if self._made_for is self.effective and self._made_of == made_of:
            return
        self._made_for, self._made_of = self.effective, made_of
        self.builds += 1
        self._access = self.core.access(self.effective, catalogue)
        self._table = self.core.table(self._access, self)
