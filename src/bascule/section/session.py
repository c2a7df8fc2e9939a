"""A session of an agent: typed state that can be put back, and the events of its tools.

Below: nothing. Above: ``runtime.py`` and the section. State is kept by type, as tuples of frozen
values, so that a snapshot costs next to nothing. A transaction gathers the changes of one call and
keeps them, or drops them, as a whole: changes that others make meanwhile are never touched. Events
are a log of what happened: no rollback unsays them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

_LOG = logging.getLogger("bascule.section")

T = TypeVar("T")
Values = tuple[Any, ...]
Change = Callable[[Values], Values]

KEPT_EVENTS = 1000


class EventBus(Protocol):
    """Whatever hears of events."""

    def publish(self, event: object) -> None:
        """Tell everybody who wants to know."""
        ...


class InProcessEventBus:
    """Calls the subscribers of an event's type, in the thread that publishes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handlers: Mapping[type[Any], tuple[Callable[[Any], object], ...]] = {}

    def subscribe(self, kind: type[T], handler: Callable[[T], object]) -> Callable[[], None]:
        """Have a handler called for every event of this type; return what ends that."""
        with self._lock:
            known = self._handlers.get(kind, ())
            self._handlers = {**self._handlers, kind: (*known, handler)}
        return lambda: self._forget(kind, handler)

    def publish(self, event: object) -> None:
        """Call every handler. A handler that fails is logged; it harms neither call nor others."""
        for handler in self._handlers.get(type(event), ()):
            try:
                handler(event)
            except Exception:  # noqa: BLE001 - a subscriber's fault is its own
                _LOG.warning("a subscriber of %s failed", type(event).__name__, exc_info=True)

    def _forget(self, kind: type[Any], handler: Callable[[Any], object]) -> None:
        with self._lock:
            left = tuple(known for known in self._handlers.get(kind, ()) if known is not handler)
            self._handlers = {**self._handlers, kind: left}


@dataclass(slots=True, frozen=True)
class Snapshot:
    """A session's state at one moment."""

    slices: Mapping[type[Any], Values] = field(default_factory=dict[type[Any], Values])


class Session:
    """State and events of one agent. ``bus`` hears of every event; the last ones are kept."""

    def __init__(self, bus: EventBus | None = None, *, kept_events: int = KEPT_EVENTS) -> None:
        self.bus: EventBus = InProcessEventBus() if bus is None else bus
        self._events: deque[Any] = deque(maxlen=kept_events)
        self._lock = threading.Lock()
        self._slices: dict[type[Any], Values] = {}

    @property
    def events(self) -> tuple[Any, ...]:
        """Return the last events, oldest first."""
        return tuple(self._events)

    def publish(self, event: object) -> None:
        """Keep an event and tell the bus of it."""
        self._events.append(event)
        self.bus.publish(event)

    def all(self, kind: type[T]) -> tuple[T, ...]:
        """Return the values of a type as this caller sees them."""
        draft = _draft_of(self)
        return self._slices.get(kind, ()) if draft is None else draft.seen(kind)

    def latest(self, kind: type[T]) -> T | None:
        """Return the value of a type that was added last."""
        found = self.all(kind)
        return found[-1] if found else None

    def append(self, value: object) -> None:
        """Add a value to those of its type."""
        self._change(type(value), lambda values: (*values, value))

    def replace(self, kind: type[T], values: Iterable[T]) -> None:
        """Put these values in the place of all of a type."""
        self._change(kind, _constantly(tuple(values)))

    def snapshot(self) -> Snapshot:
        """Return the state as it is now, to be restored later."""
        with self._lock:
            kinds = dict(self._slices)
        draft = _draft_of(self)
        if draft is not None:
            kinds = {kind: draft.seen(kind) for kind in {*kinds, *draft.kinds()}}
        return Snapshot(MappingProxyType(kinds))

    def restore(self, snapshot: Snapshot) -> None:
        """Put the state back, as a change of the transaction under way when there is one."""
        draft = _draft_of(self)
        if draft is not None:
            draft.become(snapshot.slices, {*self.snapshot().slices, *snapshot.slices})
            return
        with self._lock:
            self._slices = dict(snapshot.slices)

    def transaction(self) -> Transaction:
        """Return a block whose changes are kept together, or not at all."""
        return Transaction(self)

    def _change(self, kind: type[Any], change: Change) -> None:
        draft = _draft_of(self)
        if draft is not None:
            draft.changes.setdefault(kind, []).append(change)
        else:
            self.commit({kind: [change]})

    def committed(self, kind: type[Any]) -> Values:
        """Return the values of a type outside of every transaction."""
        return self._slices.get(kind, ())

    def commit(self, changes: Mapping[type[Any], list[Change]]) -> None:
        """Apply changes to the state, whatever it is by now."""
        with self._lock:
            for kind, made in changes.items():
                self._slices[kind] = _applied(self._slices.get(kind, ()), made)


class Transaction:
    """The changes of one call. An exception or ``rollback`` drops them; the end commits them."""

    __slots__ = ("_outer", "_session", "_token", "changes")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._outer: Transaction | None = None
        self._token: Token[Transaction | None] | None = None
        self.changes: dict[type[Any], list[Change]] = {}

    def rollback(self) -> None:
        """Drop what was changed so far."""
        self.changes.clear()

    def become(self, slices: Mapping[type[Any], Values], kinds: Iterable[type[Any]]) -> None:
        """Have these values, and none of the other kinds, in the place of what there was."""
        self.changes = {kind: [_constantly(slices.get(kind, ()))] for kind in kinds}

    def kinds(self) -> set[type[Any]]:
        """Return the types that it, or a transaction around it, has changed."""
        outer = self._enclosing()
        return {*self.changes, *(() if outer is None else outer.kinds())}

    def seen(self, kind: type[Any]) -> Values:
        """Return the values of a type with the changes of this transaction."""
        outer = self._enclosing()
        before = self._session.committed(kind) if outer is None else outer.seen(kind)
        return _applied(before, self.changes.get(kind, ()))

    def belongs_to(self, session: Session) -> bool:
        """Say whether it is a transaction of this session."""
        return self._session is session

    @property
    def outer(self) -> Transaction | None:
        """Return the transaction around it, of whichever session."""
        return self._outer

    def __enter__(self) -> Self:
        self._outer = _DRAFT.get()
        self._token = _DRAFT.set(self)
        return self

    def __exit__(self, kind: object, error: object, *_: object) -> None:
        if self._token is not None:
            _DRAFT.reset(self._token)
        if error is None and self.changes:
            self._keep()

    def _keep(self) -> None:
        outer = self._enclosing()
        if outer is None:
            self._session.commit(self.changes)
            return
        for kind, made in self.changes.items():
            outer.changes.setdefault(kind, []).extend(made)

    def _enclosing(self) -> Transaction | None:
        return _nearest(self._outer, self._session)


_DRAFT: ContextVar[Transaction | None] = ContextVar("bascule_section_transaction", default=None)


def _draft_of(session: Session) -> Transaction | None:
    draft = _DRAFT.get()
    return None if draft is None else _nearest(draft, session)


def _nearest(draft: Transaction | None, session: Session) -> Transaction | None:
    while draft is not None and not draft.belongs_to(session):
        draft = draft.outer
    return draft


def _constantly(values: Values) -> Change:
    return lambda _: values


def _applied(values: Values, changes: Iterable[Change]) -> Values:
    for change in changes:
        values = change(values)
    return values
