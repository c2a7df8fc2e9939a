"""A session of an agent: typed state that can be put back, and the events of its tools.

State is kept by type, as tuples of frozen values, so that a snapshot costs next to nothing. A
transaction gathers the changes of one call and keeps them, or drops them, as a whole: changes that
others make meanwhile are never touched. Events are a log of what happened: no rollback unsays them.
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
Slices = Mapping[type, Values]
Change = Callable[[Values], Values]

KEPT_EVENTS = 1000


class EventBus(Protocol):
    """Whatever hears of events."""

    def publish(self, event: object) -> None: ...


class InProcessEventBus:
    """Calls the subscribers of an event's type, in the thread that publishes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handlers: Mapping[type, tuple[Callable[[Any], object], ...]] = {}

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

    def _forget(self, kind: type, handler: Callable[[Any], object]) -> None:
        with self._lock:
            left = tuple(known for known in self._handlers.get(kind, ()) if known is not handler)
            self._handlers = {**self._handlers, kind: left}


@dataclass(slots=True, frozen=True)
class Snapshot:
    """A session's state at one moment."""

    slices: Slices = field(default_factory=dict[type, Values])


class Session:
    """State and events of one agent. ``bus`` hears of every event; the last ones are kept."""

    def __init__(self, bus: EventBus | None = None, *, kept_events: int = KEPT_EVENTS) -> None:
        self.bus: EventBus = InProcessEventBus() if bus is None else bus
        self._events: deque[Any] = deque(maxlen=kept_events)
        self._state = _State()

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
        return _level_of(self._state).seen(kind)

    def latest(self, kind: type[T]) -> T | None:
        """Return the value of a type that was added last."""
        found = self.all(kind)
        return found[-1] if found else None

    def append(self, value: object) -> None:
        """Add a value to those of its type."""
        _level_of(self._state).add({type(value): [lambda values: (*values, value)]})

    def replace(self, kind: type[T], values: Iterable[T]) -> None:
        """Put these values in the place of all of a type."""
        _level_of(self._state).add({kind: [_constantly(tuple(values))]})

    def snapshot(self) -> Snapshot:
        """Return the state as it is now, to be restored later."""
        return Snapshot(MappingProxyType(_level_of(self._state).slices()))

    def restore(self, snapshot: Snapshot) -> None:
        """Put the state back, as a change of the transaction under way when there is one."""
        _level_of(self._state).become(snapshot.slices)

    def transaction(self) -> Transaction:
        """Return a block whose changes are kept together, or not at all."""
        return Transaction(self._state)


class _State:
    """The values of one session outside of every transaction."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slices: dict[type, Values] = {}

    def seen(self, kind: type) -> Values:
        return self._slices.get(kind, ())

    def slices(self) -> dict[type, Values]:
        with self._lock:
            return dict(self._slices)

    def become(self, slices: Slices) -> None:
        with self._lock:
            self._slices = dict(slices)

    def add(self, changes: Mapping[type, list[Change]]) -> None:
        """Apply changes to the values, whatever they are by now."""
        with self._lock:
            for kind, made in changes.items():
                self._slices[kind] = _applied(self.seen(kind), made)


class Transaction:
    """The changes of one call. An exception or ``rollback`` drops them; the end commits them."""

    __slots__ = ("_changes", "_outer", "_token", "around", "state")

    def __init__(self, state: _State) -> None:
        self.state = state
        #: The transaction around it, of whichever session.
        self.around: Transaction | None = None
        self._outer: _State | Transaction = state
        self._token: Token[Transaction | None] | None = None
        self._changes: dict[type, list[Change]] = {}

    def rollback(self) -> None:
        """Drop what was changed so far."""
        self._changes.clear()

    def seen(self, kind: type) -> Values:
        """Return the values of a type with the changes of this transaction."""
        return _applied(self._outer.seen(kind), self._changes.get(kind, ()))

    def slices(self) -> dict[type, Values]:
        """Return all values with the changes of this transaction."""
        return self._outer.slices() | {kind: self.seen(kind) for kind in self._changes}

    def become(self, slices: Slices) -> None:
        """Have these values, and none of the other kinds, in the place of what there was."""
        kinds = {*self.slices(), *slices}
        self._changes = {kind: [_constantly(slices.get(kind, ()))] for kind in kinds}

    def add(self, changes: Mapping[type, list[Change]]) -> None:
        """Make changes after those that were made so far."""
        for kind, made in changes.items():
            self._changes.setdefault(kind, []).extend(made)

    def __enter__(self) -> Self:
        self.around = _DRAFT.get()
        self._outer = _level_of(self.state)
        self._token = _DRAFT.set(self)
        return self

    def __exit__(self, kind: object, error: object, *_: object) -> None:
        if self._token is not None:
            _DRAFT.reset(self._token)
        if error is None and self._changes:
            self._outer.add(self._changes)


_DRAFT: ContextVar[Transaction | None] = ContextVar("bascule_section_transaction", default=None)


def _level_of(state: _State) -> _State | Transaction:
    """Return where changes of a state go now: its nearest transaction, or the state itself."""
    draft = _DRAFT.get()
    while draft is not None and draft.state is not state:
        draft = draft.around
    return draft or state


def _constantly(values: Values) -> Change:
    return lambda _: values


def _applied(values: Values, changes: Iterable[Change]) -> Values:
    for change in changes:
        values = change(values)
    return values
