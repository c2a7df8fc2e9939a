"""Where approvals are kept: in memory, or in the ledger's database, where the chain is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from bascule.audit.approval_steps import digest_of
from bascule.audit.event_bytes import event_bytes
from bascule.audit.events import ApprovalMoved, CallIntent
from bascule.audit.ledger_file import FILE, Tables, append
from bascule.clock import Clock
from bascule.db.statements import Statements
from bascule.model.approval import STEPS, Approval, ApprovalState, ExactCall, Shown

_decode = msgspec.json.Decoder(Approval).decode
_OPEN = tuple(STEPS)
_COUNTED = frozenset({*STEPS, "denied"})
KEPT = 10_000  # events, and approvals, in memory
_MOVED_AT = "approvals_moved_at"
_STEPS = "approvals_steps"


class Sealer(Protocol):
    """Seals what nobody may read from a copy of the file; ``name`` says where it belongs."""

    def seal(self, name: str, plain: bytes) -> bytes: ...

    def unseal(self, name: str, sealed: bytes) -> bytes | None:
        """Return what was sealed; None where it was changed, or the key is another one."""
        ...


class ApprovalFilter(Struct, frozen=True, kw_only=True):
    """Which approvals are wanted, the newest first; ``tasks`` are those one may see."""

    states: tuple[ApprovalState, ...] = ()
    task_id: str | None = None
    server_id: str | None = None
    tool_name: str | None = None
    person: str | None = None
    tasks: tuple[str, ...] | None = None
    #: Those asked before this one, by its time and id.
    before: tuple[float, str] | None = None
    limit: int = 50

    def admits(self, approval: Approval) -> bool:
        """Say whether an approval is one of those."""
        call = approval.call
        wanted = (self.task_id, self.server_id, self.tool_name, self.person)
        found = (call.task_id, call.server_id, call.tool_name, call.person)
        return (
            (not self.states or approval.state in self.states)
            and all(one is None or one == has for one, has in zip(wanted, found, strict=True))
            and (self.tasks is None or call.task_id in self.tasks)
            and (self.before is None or (approval.asked_at, approval.id) < self.before)
        )


class Date:
    """The date of steps, which never goes back: where the clock does, time goes on all the same."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The last step's date, and when that was first seen.
        self._last = (0.0, clock.monotonic())

    def now(self, last: float) -> float:
        """Return the date; ``last`` is the one of the last step."""
        if last != self._last[0]:
            self._last = last, self._clock.monotonic()
        return max(self._clock.now(), last + self._clock.monotonic() - self._last[1])


class MemoryRows:
    """Approvals that live as long as their process."""

    def __init__(self) -> None:
        self.now = 0.0
        #: What this step has moved.
        self.moved: list[Approval] = []
        self.events: deque[ApprovalMoved | CallIntent] = deque(maxlen=KEPT)
        self._kept: dict[str, Approval] = {}
        self._moved_at: dict[str, float] = {}
        self._shown: dict[str, Shown] = {}
        self._last = 0.0

    def begin(self, date: Date) -> None:
        """Begin a step."""
        self.now = date.now(self._last)
        self.moved = []

    def get(self, id: str) -> Approval | None:
        return self._kept.get(id)

    def newest_of(self, call: ExactCall) -> Approval | None:
        return next(
            (one for one in reversed(self._kept.values()) if one.call.bound == call.bound), None
        )

    def put(self, approval: Approval, *, asked: Shown | None = None) -> None:
        if asked is not None:
            self._shown[approval.id] = asked
        elif approval.state not in STEPS:
            self._shown.pop(approval.id, None)
        self._kept[approval.id] = approval
        self._moved_at[approval.id] = self._last = self.now
        self.moved.append(approval)
        if len(self._kept) > KEPT:
            self._forget_one()

    def amend(self, approval: Approval) -> None:
        """Keep more of a pending question; no step is made by it."""
        self._kept[approval.id] = approval

    def _forget_one(self) -> None:
        """Forget the oldest that came to its end; denials count for a while, and stay."""
        ended = (id for id, one in self._kept.items() if one.state not in _COUNTED)
        oldest = next(ended, None)
        if oldest is not None:
            del self._kept[oldest], self._moved_at[oldest]

    def pending_of(self, token_id: str) -> int:
        waiting = (one for one in self._kept.values() if one.state == "pending")
        return sum(one.call.token_id == token_id for one in waiting)

    def denials(self, call: ExactCall, since: float) -> int:
        denied = (one for one in self._kept.values() if one.state == "denied")
        same = (one for one in denied if _same_tool(one.call, call))
        return sum(self._moved_at[one.id] > since for one in same)

    def open_of(self, call: ExactCall) -> Sequence[Approval]:
        return [one for one in self.open() if _same_tool(one.call, call)]

    def due(self) -> Sequence[Approval]:
        return [one for one in self.open() if one.expires_at <= self.now]

    def open(self) -> Sequence[Approval]:
        return [one for one in self._kept.values() if one.state in STEPS]

    def write(self, event: ApprovalMoved | CallIntent) -> None:
        self.events.append(event)

    def shown(self, id: str) -> Shown | None:
        """Return what is shown of a question, while that is kept."""
        return self._shown.get(id)

    def listing(self, wanted: ApprovalFilter) -> list[Approval]:
        """Return those that are wanted, the newest first."""
        newest = sorted(self._kept.values(), key=lambda one: (one.asked_at, one.id), reverse=True)
        return [one for one in newest if wanted.admits(one)][: wanted.limit]

    def forget(self, before: float) -> int:
        """Remove what came to its end before then; return how many."""
        gone = [
            one.id
            for one in self._kept.values()
            if one.state not in STEPS and self._moved_at[one.id] < before
        ]
        for id in gone:
            del self._kept[id], self._moved_at[id]
        return len(gone)


def _same_tool(one: ExactCall, other: ExactCall) -> bool:
    """Say whether the same asker wants the same tool."""
    tool = (other.asker, other.server_id, other.tool_name)
    return (one.asker, one.server_id, one.tool_name) == tool


class SqlRows:
    """The approvals of the ledger's database in one transaction."""

    def __init__(
        self,
        statements: Statements,
        sealer: Sealer,
        date: Date,
        journal: str,
        tables: Tables = FILE,
    ) -> None:
        self._statements = statements
        self._sealer = sealer
        self._journal = journal
        self._tables = tables
        self._meta = dict(
            statements.execute(
                f"SELECT key, value FROM {tables.meta} WHERE key IN (?, ?)",  # noqa: S608 - a constant
                (_MOVED_AT, _STEPS),
            )
        )
        self.now = date.now(float(self._meta.get(_MOVED_AT, 0)))
        #: The last row that was added to the chain, how many steps were made, and whether anything
        #: was removed that was sealed.
        self.number = 0
        self.steps = int(self._meta.get(_STEPS, 0))
        self.forgot = False
        #: How many had to end, because the ledger is another one now.
        self.voided = 0
        #: What this step has moved.
        self.moved: list[Approval] = []
        self._bodies: list[bytes] = []

    def get(self, id: str) -> Approval | None:
        return self._one("WHERE id = ?", id)

    def newest_of(self, call: ExactCall) -> Approval | None:
        return self._one(
            "WHERE call = ? ORDER BY asked_at DESC, rowid DESC LIMIT 1", digest_of(call.bound)
        )

    def put(self, approval: Approval, *, asked: Shown | None = None) -> None:
        if asked is not None:
            self._add(approval, asked)
        else:
            # Whether a call of a node elsewhere still runs, no journal of here can tell.
            here = approval.state == "claimed" and approval.node is None
            journal = self._journal if here else None
            body = msgspec.json.encode(approval)
            self._statements.execute(
                "UPDATE approvals SET state = ?, expires_at = ?, moved_at = ?, journal = ?, "
                "body = ? WHERE id = ?",
                (approval.state, approval.expires_at, self.now, journal, body, approval.id),
            )
        if approval.state not in STEPS:
            self.forgot = True
            query = "DELETE FROM approval_contents WHERE id = ?"
            self._statements.execute(query, (approval.id,))
        self.moved.append(approval)
        self.steps += 1

    def amend(self, approval: Approval) -> None:
        """Keep more of a pending question; no step is made by it."""
        query = "UPDATE approvals SET body = ? WHERE id = ? AND state = 'pending'"
        self._statements.execute(query, (msgspec.json.encode(approval), approval.id))

    def _add(self, approval: Approval, asked: Shown) -> None:
        call = approval.call
        self._statements.execute(
            "INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)",
            (
                approval.id,
                approval.state,
                digest_of(call.bound),
                digest_of(call.asker),
                call.token_id,
                call.task_id,
                call.server_id,
                call.tool_name,
                approval.asked_at,
                approval.expires_at,
                self.now,
                msgspec.json.encode(approval),
            ),
        )
        self._keep(approval.id, asked)

    def finish(self) -> None:
        """Add what happened to the chain, and note the time; last of all."""
        if not self.moved:
            return
        self.number = append(
            self._statements, [(0, 0, body) for body in self._bodies], self._tables
        )
        self._tables.ring(self._statements)
        self._statements.execute(
            f"INSERT INTO {self._tables.meta} (key, value) VALUES (?, ?), (?, ?)"  # noqa: S608 - a constant
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (_MOVED_AT, repr(self.now), _STEPS, str(self.steps)),
        )

    def _keep(self, id: str, shown: Shown) -> None:
        plain = len(shown.arguments).to_bytes(8) + shown.arguments + shown.definition
        query = "INSERT INTO approval_contents (id, sealed) VALUES (?, ?)"
        self._statements.execute(query, (id, self._sealer.seal(id, plain)))

    def pending_of(self, token_id: str) -> int:
        query = "SELECT count(*) FROM approvals WHERE state = 'pending' AND token_id = ?"
        return int(self._statements.execute(query, (token_id,)).fetchone()[0])

    def denials(self, call: ExactCall, since: float) -> int:
        found = self._statements.execute(
            "SELECT count(*) FROM approvals WHERE asker = ? AND server_id = ? AND tool_name = ? "
            "AND moved_at > ? AND state = 'denied'",
            (digest_of(call.asker), call.server_id, call.tool_name, since),
        )
        return int(found.fetchone()[0])

    def open_of(self, call: ExactCall) -> Sequence[Approval]:
        return self._all(
            "WHERE asker = ? AND server_id = ? AND tool_name = ? AND state IN (?, ?)",
            digest_of(call.asker),
            call.server_id,
            call.tool_name,
            *_OPEN,
        )

    def due(self) -> Sequence[Approval]:
        due = "WHERE state IN (?, ?) AND expires_at <= ? ORDER BY rowid"
        return self._all(due, *_OPEN, self.now)

    def open(self) -> Sequence[Approval]:
        return self._all("WHERE state IN (?, ?) ORDER BY rowid", *_OPEN)

    def write(self, event: ApprovalMoved | CallIntent) -> None:
        self._bodies.append(event_bytes(event))

    def shown(self, id: str) -> Shown | None:
        """Return what is shown of a question, while that is kept and can be read."""
        query = "SELECT sealed FROM approval_contents WHERE id = ?"
        found = self._statements.execute(query, (id,)).fetchone()
        plain = None if found is None else self._sealer.unseal(id, found[0])
        if plain is None:
            return None
        end = 8 + int.from_bytes(plain[:8])
        return Shown(plain[8:end], plain[end:])

    def listing(self, wanted: ApprovalFilter) -> list[Approval]:
        """Return those that are wanted, the newest first."""
        conditions, values = ["true"], list[object]()
        if wanted.states:
            conditions.append(f"state IN ({', '.join('?' * len(wanted.states))})")
            values += wanted.states
        for name in ("task_id", "server_id", "tool_name"):
            if getattr(wanted, name) is not None:
                conditions.append(f"{name} = ?")
                values.append(getattr(wanted, name))
        if wanted.tasks is not None:
            conditions.append(f"task_id IN ({', '.join('?' * len(wanted.tasks))})")
            values += wanted.tasks
        if wanted.before is not None:
            conditions.append("(asked_at, id) < (?, ?)")
            values += wanted.before
        where = f"WHERE {' AND '.join(conditions)} ORDER BY asked_at DESC, id DESC"
        rows = self._statements.execute(f"SELECT body FROM approvals {where}", values)  # noqa: S608 - names of columns
        found: list[Approval] = []
        for (body,) in rows:
            approval = _decode(body)
            if wanted.admits(approval):
                found.append(approval)
            if len(found) == wanted.limit:
                break
        return found

    def forget(self, before: float) -> int:
        """Remove what came to its end before then; return how many."""
        query = "DELETE FROM approvals WHERE state NOT IN (?, ?) AND moved_at < ?"
        return self._statements.execute(query, (*_OPEN, before)).rowcount

    def _one(self, where: str, *values: object) -> Approval | None:
        found = self._all(where, *values)
        return found[0] if found else None

    def _all(self, where: str, *values: object) -> list[Approval]:
        rows = self._statements.execute(f"SELECT body FROM approvals {where}", values)  # noqa: S608 - constants
        return [_decode(body) for (body,) in rows.fetchall()]
