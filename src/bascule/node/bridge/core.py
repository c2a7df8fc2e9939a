"""What all sessions of one bridge share.

``bascule.node.assembly.Bridge`` is this, joined to a pool. The snapshot is swapped as a whole;
sessions notice at their next step.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import TypedDict, Unpack

from msgspec.structs import replace

from bascule.audit.events import SessionRefusal
from bascule.audit.ledger import Ledger
from bascule.audit.metrics import OTHER, Metrics
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import InvalidRecord, SessionRefused
from bascule.model.call import LogMessage
from bascule.model.decision import Distrust, Reason
from bascule.model.outcome import Failure
from bascule.model.snapshot import Snapshot
from bascule.model.status import ServerStatus
from bascule.model.task import TaskPolicy, TaskRecord
from bascule.model.tool import ToolDescriptor
from bascule.model.whole_words import beginning
from bascule.node.approvers import approvals_of
from bascule.node.bridge.definitions import Definitions, Presented, told
from bascule.node.bridge.known_tools import names_credential
from bascule.node.bridge.limiter import Limiter
from bascule.node.bridge.opening import Opening, SessionOptions, opening_of
from bascule.node.bridge.refusal import distrusted
from bascule.node.bridge.session import Session, Standing
from bascule.node.bridge.table import Owner, Target
from bascule.node.changes import Changes, OnChange, Unsubscribe
from bascule.node.ports import Approvals, Approver, ToolCaller
from bascule.node.settings import NodeSettings
from bascule.policy.access import Access, Catalogue, Grant, compile_access, compile_beside
from bascule.policy.characters import neutralise
from bascule.policy.cleaning import Slice, clean_value, json_slices, text_slices
from bascule.policy.compose import Effective
from bascule.policy.copies import json_bytes
from bascule.policy.leaks import Scanner
from bascule.policy.output import cap_text
from bascule.policy.schema import ArgumentValidator
from bascule.wire.faults import bounded
from bascule.wire.record_rules import refuse_bad_patterns

logger = logging.getLogger("bascule.session")


class CoreOptions(TypedDict, total=False):
    """The options that every bridge in this process takes."""

    approver: Approver | Approvals | None
    clock: Clock
    settings: NodeSettings | None
    environment: str | None


_MAX_MESSAGE = 4096
_MAX_LINE = 500
_MAX_NAME = 256  # of a name that a caller made up
_MAX_LOG = 16 * 1024
_SHOWN = 5


class BridgeCore:
    """The registry snapshot, the ports, and what sessions share."""

    def __init__(  # noqa: PLR0913 - options, all by keyword
        self,
        snapshot: Snapshot,
        caller: ToolCaller,
        ledger: Ledger,
        metrics: Metrics | None = None,
        *,
        approver: Approver | Approvals | None = None,
        clock: Clock = SYSTEM_CLOCK,
        settings: NodeSettings | None = None,
        environment: str | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.caller = caller
        self.ledger = ledger
        self.clock = clock
        self.metrics = metrics or Metrics()
        self.environment = environment
        self.validators: dict[str, ArgumentValidator] = {}
        self.settings = settings or NodeSettings()
        self.approvals = approvals_of(approver, self.settings.approval_seconds)
        self._node_limiter = Limiter(self.settings.max_concurrency)
        self._limiters: dict[str, Limiter] = {}
        self._listed: dict[str, tuple[ToolDescriptor, ...]] = {}
        self._definitions = Definitions()
        self.changes = Changes()
        #: Says why calls may not be decided by the snapshot any more, if so (``Follower``): for a
        #: node whose control plane is elsewhere.
        self.distrust: Callable[[], Distrust | None] | None = None
        #: Of this process among workers, for the ids of sessions and of what they keep.
        self.mark = ""
        self._known: frozenset[str] = frozenset()
        self._scanner = Scanner()
        self._read: frozenset[str] = frozenset()
        self._writing = Scanner()

    def refuse_distrusted(self) -> None:
        """Raise where nothing known here may decide about a call any more."""
        distrust = None if self.distrust is None else self.distrust()
        if distrust is not None:
            raise distrusted(distrust)

    @property
    def scanner(self) -> Scanner:
        """Return the scanner; it is made anew only when the values to hide change."""
        known = self.caller.known_values
        if known is not self._known:
            self._known, self._scanner = known, Scanner(known)
        return self._scanner

    @property
    def running(self) -> int:
        """Return how many calls are under way at servers."""
        return self._node_limiter.active

    @property
    def _writer(self) -> Scanner:
        """Return the scanner for what is shown or written: no reference's value stands there."""
        read = self.caller.reference_values
        if read is not self._read:
            self._read, self._writing = read, Scanner(read)
        return self._writing

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """Open a session; raise SessionRefused when it asks for more than it may have.

        Without a task it may use the servers it names; with one, what the task allows.
        """
        return self.open_session(opening_of(options))

    def _warn_of_no_servers(self, asked: tuple[str, ...] | None) -> None:
        """Warn whoever writes the program: such a session is legal, and has nothing to offer."""
        known = self.snapshot.servers
        if asked is None:
            names = ", ".join(list(known)[:_SHOWN]) or "none"
            logger.warning("a session without server_ids and task has no tools; known: %s", names)
        for server in asked or ():
            if server not in known:
                near = get_close_matches(server, known, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                logger.warning("there is no server %r%s", server, meant)

    def open_session(self, opening: Opening, *, standing: Standing | None = None) -> Session:
        """Open a session from a value; raise InvalidRecord for a bad pattern.

        ``standing`` is asked after a call's waits.
        """
        task, caller = opening.task, opening.caller
        for request in opening.requests:
            refuse_bad_patterns(request)
        if isinstance(task, TaskPolicy | TaskRecord):  # made in code, so that nobody has read it
            refuse_bad_patterns(task.mcp if isinstance(task, TaskRecord) else task)
        if task is None:
            self._warn_of_no_servers(opening.request.server_ids)
        record = self._task(task, opening) if isinstance(task, str) else task
        session_id = secrets.token_hex(8) + self.mark
        try:
            session = Session(self, session_id, opening, record, standing)
        except SessionRefused as refusal:
            named = record.task_id if isinstance(record, TaskRecord) else None
            self.note_refused(
                refusal,
                task_id=named,
                caller=caller,
                token_id=opening.token_id,
                person=opening.person,
            )
            raise
        if session.shares.whose.task:  # the others have nothing apart, and may never be closed
            self.caller.introduce(session_id, session.shares.whose)
        if opening.inputs is not None:
            self.caller.offer(session_id, opening.inputs)
        return session

    def statuses(self) -> Sequence[ServerStatus]:
        """Return how every server's connection stands."""
        return self.caller.statuses()

    def subscribe(self, on_change: OnChange) -> Unsubscribe:
        """Call a function for each change of a server, of its tools or of the records.

        It runs on the event loop after what caused it, and should be quick; what it raises is
        logged. The function that is returned ends the subscription.
        """
        return self.changes.subscribe(on_change)

    async def reconnect(self, server_id: str) -> None:
        """Tear down and reconnect one server; raise what goes wrong."""
        await self.caller.reconnect(server_id)

    def note_refused(
        self,
        refusal: SessionRefused,
        *,
        task_id: str | None,
        caller: str | None,
        token_id: str | None = None,
        person: str | None = None,
        session_id: str | None = None,
    ) -> None:
        """Write down and count a session that is refused, by whichever part of a door."""
        self.metrics.session_refused(refusal.reason)
        self.ledger.session_refused(
            SessionRefusal(
                timestamp=self.clock.now(),
                session_id=session_id,
                task_id=task_id,
                caller=caller,
                token_id=token_id,
                person=person,
                revision=self.snapshot.revision,
                server_id=None if refusal.server is None else refusal.server[:_MAX_NAME],
                reason=refusal.reason,
                message=self.presentable_text(str(refusal)),
            )
        )

    def count_refused(self, server: str, tool: str, code: str) -> None:
        """Count a call that never got to its tool; names that a caller made up are no labels."""
        known = server in self.snapshot.servers
        listed = self._listed.get(server) if known else None
        real = tool if known and (listed is None or any(t.name == tool for t in listed)) else None
        self.metrics.refused(server if known else None, real, code)

    def count_denied(self, server: str, reason: Reason) -> None:
        """Count a denial by its reason, under no name that a caller made up."""
        known = server in self.snapshot.servers
        self.metrics.denied(server if known else OTHER, reason)

    def note_listed(self, server: str, tools: tuple[ToolDescriptor, ...]) -> None:
        """Remember which tools a server really has."""
        self._listed[server] = tools

    def access(self, effective: Effective, listed: Catalogue) -> Access:
        """Decide on the tools of a session's lists.

        A session that calls before it lists knows one list. What its other servers listed last, for
        whomever, counts as well, so that a tool beyond the cap is not called before it is cut.
        """
        known = {one: self._listed[one] for one in effective.servers if one in self._listed}
        most = effective.bounds.max_tools
        if not listed or most is None or sum(map(len, known.values())) <= most:
            return compile_access(effective, listed)
        return compile_beside(effective, listed, known)

    def table(self, access: Access, owner: Owner) -> dict[str, Target]:
        """Return the targets of a session by the name a model uses."""
        return {
            name: Target(
                grant,
                self.metrics.tool(grant.tool.server_id, grant.tool.name),
                self.validators,
                self._limiters_of(grant),
                owner,
            )
            for name, grant in access.grants.items()
        }

    def shown(self, access: Access) -> Presented:
        """Return the tools of a session without credentials in their definitions, and warnings."""
        found = [(g, self._definitions.shown(g, self.scanner)) for g in access.grants.values()]
        notes = (told(shown, g.tool.server_id, g.tool.name) for g, shown in found)
        tools = tuple(shown.tool for _, shown in found if shown.tool is not None)
        return tools, tuple(note for note in notes if note is not None)

    def shown_instructions(self, text: str) -> str:
        """Return what a server says about its use, fit to be shown, and no more than so much."""
        return self._definitions.instructions(text, self.scanner)

    def names_credential(self, tool: ToolDescriptor) -> bool:
        """Say whether a tool is called like a credential: its name is then shown to nobody."""
        return names_credential(tool, self.scanner)

    def _limiters_of(self, grant: Grant) -> tuple[Limiter, Limiter]:
        """Return whose places a call needs: its server's and the node's."""
        limit = grant.budgets.max_concurrency
        limiter = self._limiters.setdefault(grant.tool.server_id, Limiter(limit))
        if limiter.limit != limit:
            limiter.resize(limit)
        return limiter, self._node_limiter

    def presentable_text(self, text: str) -> str:
        """Return words that came from a server or the system, fit to be shown."""
        shortened = beginning(text, 4 * _MAX_MESSAGE)
        return self._writer.mask(neutralise(shortened).text)[0][:_MAX_MESSAGE]

    def presentable_lines(self, text: str, most: int) -> tuple[str, ...]:
        """Return the last lines that a server wrote, fit to be shown; a secret may span some."""
        shown = self._writer.mask(neutralise(text[-4 * _MAX_MESSAGE :]).text)[0]
        lines = [line for line in shown.splitlines() if line.strip()]
        return tuple(line[:_MAX_LINE] for line in lines[-most:])

    def presentable_log(self, message: LogMessage) -> LogMessage:
        """Return what a server logs, fit to be shown; of very much, the beginning as text."""
        data, scanner = message.data, self._writer
        size = len(json_bytes(data))
        if size <= _MAX_LOG:
            data = clean_value(data, scanner).value
        else:
            slices = text_slices if isinstance(data, str) else json_slices
            data = _beginning(slices(data, scanner, _MAX_LOG), size)
        logger = None if message.logger is None else self.presentable_text(message.logger)
        return LogMessage(message.level, data, logger)

    def presentable(self, problem: Failure) -> Failure:
        """Return a failure fit to be shown; its details repeat what servers wrote as well."""
        message = self.presentable_text(problem.message)
        if not problem.details:
            return replace(problem, message=message)
        details = clean_value(problem.details, self._writer).value
        return replace(problem, message=message, details=bounded(details))

    def _task(self, task_id: str, opening: Opening) -> TaskRecord:
        try:
            return self.snapshot.tasks[task_id]
        except KeyError:
            refusal = SessionRefused("unknown_task", f"the task {task_id!r} does not exist")
            self.note_refused(
                refusal,
                task_id=None,
                caller=opening.caller,
                token_id=opening.token_id,
                person=opening.person,
            )
            known = ", ".join(sorted(self.snapshot.tasks)) or "none"
            raise InvalidRecord([f"task: no task {task_id!r} (known: {known})"]) from None


def _beginning(slices: Iterator[Slice], size: int) -> str:
    """Return as much of a text of this size as may be logged; its slices are cleaned already."""
    text = ""
    while len(text) <= _MAX_LOG and (piece := next(slices, None)) is not None:
        text += piece.text
    return cap_text(text, _MAX_LOG, max(0, size - len(text))).text
