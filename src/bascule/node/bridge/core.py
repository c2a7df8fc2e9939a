"""What all sessions of one bridge share.

Below: the ports. Above: ``bascule.node.assembly.Bridge`` is this, joined to a pool. The snapshot
is swapped as a whole; sessions notice at their next step.
"""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from bascule.audit.metrics import Metrics
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import InvalidRecord
from bascule.model.outcome import Failure
from bascule.model.session import UNLIMITED, SessionLimits, SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.node.bridge.limiter import Limiter
from bascule.node.bridge.session import Session, Standing
from bascule.node.bridge.table import Target
from bascule.node.ports import Approver, InputHandler, Ledger, ToolCaller
from bascule.node.settings import NodeSettings
from bascule.policy.access import Access, Grant
from bascule.policy.characters import neutralise
from bascule.policy.leaks import Scanner
from bascule.policy.schema import ArgumentValidator

_MAX_MESSAGE = 4096


class BridgeCore:
    """The registry snapshot, the ports, and what sessions share."""

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        snapshot: Snapshot,
        caller: ToolCaller,
        ledger: Ledger,
        *,
        approver: Approver | None = None,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
        settings: NodeSettings | None = None,
        environment: str | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.caller = caller
        self.ledger = ledger
        self.approver = approver
        self.clock = clock
        self.metrics = metrics or Metrics()
        self.environment = environment
        self.validators: dict[str, ArgumentValidator] = {}
        self.settings = settings or NodeSettings()
        self._node_limiter = Limiter(self.settings.max_concurrency)
        self._limiters: dict[str, Limiter] = {}
        self._scanner = _Scanning()
        self._writing = _Scanning()

    @property
    def scanner(self) -> Scanner:
        """Return the scanner; it is made anew only when the values to hide change."""
        return self._scanner.of(self.caller.known_values)

    def session(  # noqa: PLR0913 - options, all by keyword
        self,
        *,
        server_ids: list[str] | tuple[str, ...] | None = None,
        task: str | TaskRecord | TaskPolicy | None = None,
        tool_allowlist: list[str] | tuple[str, ...] | None = None,
        tool_denylist: list[str] | tuple[str, ...] = (),
        read_only: bool = False,
        caller: str | None = None,
        limits: SessionLimits = UNLIMITED,
        inputs: InputHandler | None = None,
    ) -> Session:
        """Open a session; raise SessionRefused when it asks for more than it may have.

        Without a task it may use the servers it names; with one, what the task allows. With
        ``inputs`` it has connections of its own, and their servers may ask for what that offers.
        """
        request = SessionRequest(
            server_ids=None if server_ids is None else tuple(server_ids),
            tool_allowlist=None if tool_allowlist is None else tuple(tool_allowlist),
            tool_denylist=tuple(tool_denylist),
            read_only=read_only,
        )
        return self.open_session(request, task=task, caller=caller, limits=limits, inputs=inputs)

    def open_session(
        self,
        request: SessionRequest,
        *,
        task: str | TaskRecord | TaskPolicy | None = None,
        caller: str | None = None,
        limits: SessionLimits = UNLIMITED,
        inputs: InputHandler | None = None,
        standing: Standing | None = None,
    ) -> Session:
        """Open a session from its parsed parameters; ``standing`` is asked after a call's waits."""
        record = self._task(task) if isinstance(task, str) else task
        session_id = secrets.token_hex(8)
        session = Session(
            self,
            session_id,
            request,
            task=record,
            caller=caller,
            limits=limits,
            standing=standing,
        )
        if inputs is not None:
            self.caller.offer(session_id, inputs)
        return session

    def table(self, access: Access) -> dict[str, Target]:
        """Return the targets of a session by the name a model uses."""
        return {
            name: Target(
                grant,
                self.metrics.tool(grant.tool.server_id, grant.tool.name),
                self.validators,
                self._limiters_of(grant),
            )
            for name, grant in access.grants.items()
        }

    def _limiters_of(self, grant: Grant) -> tuple[Limiter, Limiter]:
        """Return whose places a call needs: its server's and the node's."""
        limit = grant.budgets.max_concurrency
        limiter = self._limiters.setdefault(grant.tool.server_id, Limiter(limit))
        if limiter.limit != limit:
            limiter.resize(limit)
        return limiter, self._node_limiter

    def presentable_text(self, text: str) -> str:
        """Return words that came from a server or the system, fit to be shown."""
        writing = self._writing.of(self.caller.reference_values)
        shortened = text[: 4 * _MAX_MESSAGE]  # a value cut in half here is cut away below
        return writing.mask(neutralise(shortened).text)[0][:_MAX_MESSAGE]

    def presentable(self, problem: Failure) -> Failure:
        """Return a failure fit to be shown."""
        return replace(problem, message=self.presentable_text(problem.message))

    def _task(self, task_id: str) -> TaskRecord:
        try:
            return self.snapshot.tasks[task_id]
        except KeyError:
            known = ", ".join(sorted(self.snapshot.tasks)) or "none"
            raise InvalidRecord([f"task: no task {task_id!r} (known: {known})"]) from None


class _Scanning:
    """A scanner for a set of values, made anew only when the set is another."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self._scanner = Scanner()

    def of(self, values: frozenset[str]) -> Scanner:
        """Return the scanner for these values."""
        if values is not self._values:
            self._values, self._scanner = values, Scanner(values)
        return self._scanner
