"""Which backend answers for a model: ``NAME/model``, or a model's name that only one has.

The records are followed at each question: a changed one gets a new upstream, and the old one lets
its connections go when its requests have ended.

What a record lists in ``models`` (``*`` and ``?`` stand for any text) is all that its backend is
used for. A backend that lists nothing is asked, and its word is kept for a while; a name that some
record lists counts before one that a server only claims.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from weakref import WeakSet

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.loop.backend import ChatUpstream, UpstreamFailed
from bascule.loop.http_backend import HttpUpstream
from bascule.model.backend import BackendRecord
from bascule.model.json import JsonValue
from bascule.model.pattern import Pattern
from bascule.model.snapshot import Snapshot
from bascule.outbound.references import SecretSource, resolver_of
from bascule.outbound.rules import NodeRules

#: How long a backend's own list of models counts, and how long its silence does.
LIST_SECONDS = 60.0
FAILED_SECONDS = 10.0
#: How long somebody who asks for a model waits for the lists of backends that are slow to answer.
ASK_SECONDS = 5.0
_NEAR = 3
_LONGEST = 200
#: How many names a name is compared with: nobody else is answered meanwhile.
_COMPARED = 1000
_CUTOFF = 0.5


class UnknownModel(BasculeError):
    """No backend answers for this model, or more than one does. ``near`` may be meant."""

    code = "unknown_model"

    def __init__(self, message: str, *, near: Collection[str] = ()) -> None:
        self.near = tuple(near)
        super().__init__(message)


class Chosen(Struct, frozen=True):
    """Where a request goes, and what its model is called there."""

    upstream: ChatUpstream
    model: str


class Backends:
    """The backends of a registry, and those that are built in unless a record has their name."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        rules: NodeRules,
        built_in: Mapping[str, ChatUpstream] | None = None,
        environ: Mapping[str, str] | None = None,
        secrets: SecretSource | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._snapshot = snapshot
        self._upstream = partial(
            HttpUpstream,
            rules=rules,
            environ=environ,
            secrets=resolver_of(secrets),
            clock=clock,
            on_keys=self._remember,
        )
        #: Every key and header that was ever read for a backend: to be masked.
        self.known_values: frozenset[str] = frozenset()
        self._clock = clock
        self._created = int(clock.now())
        self._built_in = {
            name: _Listed(name, upstream, (name,)) for name, upstream in (built_in or {}).items()
        }
        self._followed: Mapping[str, BackendRecord] | None = None
        self._entries: dict[str, _Listed] = dict(self._built_in)
        self._made: WeakSet[HttpUpstream] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()

    async def choose(self, model: str) -> Chosen:
        """Return the backend for a model; raise UnknownModel."""
        entries = self._follow()
        named, rest = _named(model, entries)
        if named is not None:
            return Chosen(named.upstream, rest)
        if not any(entry.listed and entry.offers(model) for entry in entries.values()):
            await self._ask(entry for entry in entries.values() if not entry.listed)
        found = _having(model, entries)
        if len(found) == 1:
            return Chosen(found[0].upstream, model)
        raise self._unknown(model, found, entries)

    async def models(self) -> list[dict[str, JsonValue]]:
        """Return every model in OpenAI's form, as ``NAME/model`` and, where that is clear, bare.

        A backend that does not answer adds nothing but a word to ``warnings``.
        """
        entries = self._follow()
        await self._ask(entries.values())
        names = {name: entry.names() for name, entry in entries.items()}
        rows = [self._row(f"{name}/{model}", name) for name in names for model in names[name]]
        rows += [
            self._row(model, name)
            for name, models in names.items()
            for model in models
            if _named(model, entries)[0] is None and _having(model, entries) == [entries[name]]
        ]
        return rows

    def renew_secret(self, name: str) -> None:
        """Have a secret's new value used from the next request on."""
        for upstream in list(self._made):
            upstream.renew_secret(name)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return why some backends could not say which models they have."""
        return tuple(entry.warning for entry in self._entries.values() if entry.warning)

    async def close(self) -> None:
        """End every connection, and whatever is asked in the background."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for upstream in list(self._made):
            await upstream.close()

    # --- following the records

    def _follow(self) -> dict[str, _Listed]:
        """Bring the upstreams up to date with the records, and return those that are enabled."""
        records = self._snapshot().backends
        if records is self._followed:
            return self._entries
        kept = self._entries
        self._entries = {n: entry for n, entry in self._built_in.items() if n not in records}
        for name, record in sorted(records.items()):
            if record.enabled:
                old = kept.get(name)
                self._entries[name] = old if old and old.record == record else self._new(record)
        self._followed = records
        for entry in kept.values():
            upstream = entry.upstream
            if self._entries.get(entry.name) is not entry and isinstance(upstream, HttpUpstream):
                self._beside(upstream.retire())
        return self._entries

    def _new(self, record: BackendRecord) -> _Listed:
        upstream = self._upstream(record)
        self._made.add(upstream)
        return _Listed(record.name, upstream, record.models, record)

    def _remember(self, known: frozenset[str]) -> None:
        if not known <= self.known_values:  # others compare it by identity
            self.known_values |= known

    def _beside(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- asking for models

    async def _ask(self, entries: Iterable[_Listed]) -> None:
        """Have the lists of those that list none: wait for what is not known yet, renew the rest.

        One question for all who ask at the same time; nobody waits longer than a few seconds.
        """
        waiting: list[asyncio.Task[None]] = []
        for entry in entries:
            if entry.needs_asking and entry.due <= self._clock.monotonic():
                if entry.asking is None:
                    entry.asking = self._beside(self._list(entry))
                if not entry.answered:
                    waiting.append(entry.asking)
        if waiting:
            await asyncio.wait(waiting, timeout=ASK_SECONDS)

    async def _list(self, entry: _Listed) -> None:
        try:
            entry.learn(await entry.upstream.models())
            entry.due = self._clock.monotonic() + LIST_SECONDS
        except UpstreamFailed as error:
            entry.warning = f"backend {entry.name} did not say which models it has: {error}"
            entry.due = self._clock.monotonic() + FAILED_SECONDS
        finally:
            entry.asking = None

    # --- answers

    def _row(self, model: str, owner: str) -> dict[str, JsonValue]:
        return {"id": model, "object": "model", "created": self._created, "owned_by": owner}

    def _unknown(
        self, model: str, found: list[_Listed], entries: Mapping[str, _Listed]
    ) -> UnknownModel:
        if found:
            choices = [f"{entry.name}/{model}" for entry in found]
            several = f"the model {model!r} is offered by several backends: choose one of "
            return UnknownModel(several + ", ".join(choices), near=choices)
        model = model[:_LONGEST]
        known = [f"{name}/{m}" for name, entry in entries.items() for m in entry.names()]
        known = known[:_COMPARED]
        bare = {full.partition("/")[2]: full for full in reversed(known)}
        close = difflib.get_close_matches(model, [*known, *bare], n=_NEAR, cutoff=_CUTOFF)
        near = list(dict.fromkeys(bare.get(one, one) for one in close)) or _respelt(model, entries)
        hint = f"; did you mean {' or '.join(near)}?" if near else _there_are(known)
        off = (self._followed or {}).get(model.partition("/")[0])
        if off is not None and not off.enabled:
            hint = f"; the backend {off.name} is not enabled"
        return UnknownModel(f"no backend answers for the model {model!r}{hint}", near=near)


def _respelt(model: str, entries: Mapping[str, _Listed]) -> list[str]:
    """Return what ``NAME/model`` would be with a backend's name that is near."""
    name, slash, rest = model.partition("/")
    close = difflib.get_close_matches(name, list(entries), n=1) if slash else []
    return [f"{one}/{rest}" for one in close if rest and entries[one].offers(rest)]


def _there_are(known: Sequence[str]) -> str:
    """Say what could have been asked for: a few of them, and where all are listed."""
    shown = ", ".join(known[:_NEAR])
    return f"; there {'are' if known else 'is'} {shown or 'none'} (GET /v1/models lists all)"


def _named(model: str, entries: Mapping[str, _Listed]) -> tuple[_Listed | None, str]:
    """Return the backend that ``NAME/model`` names, if it is there and has that model."""
    name, _, rest = model.partition("/")
    entry = entries.get(name)
    return (entry if entry is not None and rest and entry.offers(rest) else None), rest


def _having(model: str, entries: Mapping[str, _Listed]) -> list[_Listed]:
    """Return the backends that a bare name means: those that list it, else those that claim it."""
    listed = [entry for entry in entries.values() if entry.listed and entry.offers(model)]
    return listed or [e for e in entries.values() if not e.listed and model in e.asked]


class _Listed:
    """One backend, what it is used for, and what it said about its models."""

    def __init__(
        self,
        name: str,
        upstream: ChatUpstream,
        models: tuple[str, ...],
        record: BackendRecord | None = None,
    ) -> None:
        self.name = name
        self.upstream = upstream
        self.record = record
        self.listed = bool(models)
        self._patterns = tuple(Pattern(f"model/{entry}") for entry in models)
        self._plain = tuple(entry for entry in models if not {"*", "?"} & {*entry})
        self.needs_asking = len(self._plain) < len(models) or not models
        #: What the server says it has, in its order.
        self.asked: Mapping[str, None] = {}
        self.answered = False
        self.warning = ""
        self.due = float("-inf")
        self.asking: asyncio.Task[None] | None = None

    def offers(self, model: str) -> bool:
        """Say whether the backend may be used for a model; one that lists none takes any."""
        return not self.listed or any(one.matches("model", model) for one in self._patterns)

    def names(self) -> tuple[str, ...]:
        """Return the models to show: those written out, and of the server's own what is offered."""
        own = (name for name in self.asked if self.offers(name))
        return tuple(dict.fromkeys((*self._plain, *own)))

    def learn(self, models: list[str]) -> None:
        """Keep what the server says."""
        self.asked = dict.fromkeys(models)
        self.answered, self.warning = True, ""
