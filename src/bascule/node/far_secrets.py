"""Secrets of a control plane elsewhere, in the memory of the node that has asked for them.

The control plane is asked whenever a server or backend needs a secret, so that what was unbound is
not used again. While it is away, what it gave before is used: servers go on, and start again. None
of it is ever written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NoReturn, Protocol, TypeAlias

from msgspec import Struct

from bascule.errors import BasculeError, SecretUnbound, ServerUnavailable
from bascule.model.secret_use import SecretUse, UserKind

#: What stands for every name.
ALL_NAMES = "*"
#: How long the control plane may take to answer, and where there is a value to go on with.
ANSWER_SECONDS = 10.0
SHORT_SECONDS = 2.0
#: Secrets that are kept at most; those asked for longest ago go first.
MOST_KEPT = 10_000
_Place: TypeAlias = tuple[str, UserKind, str]


class SecretPort(Protocol):
    """The control plane (``bascule.client.secrets.RpcSecrets``)."""

    @property
    def is_followed(self) -> bool:
        """Say whether it is followed: only then it is believed that it refuses."""
        ...

    async def ask(self, name: str, use: SecretUse) -> str:
        """Return a secret; raise KeyError or SecretUnbound where it is refused."""
        ...


class _Kept(Struct, frozen=True):
    """A value, and for whom; no ``repr`` shows it."""

    use: SecretUse
    value: str

    def __repr__(self) -> str:
        return f"_Kept({self.use!r})"


class FarSecrets:
    """A ``SecretResolver`` that asks a control plane. ``run`` it, to hear of changes."""

    def __init__(self, port: SecretPort) -> None:
        self._port = port
        self._kept: dict[_Place, _Kept] = {}
        #: Those that were asked for and not given.
        self._lacking: dict[_Place, SecretUse] = {}
        self._subscribers: list[Callable[[str], None]] = []
        self._changed: set[str] = set()
        self._news = asyncio.Event()
        #: All values that this node was given, old ones too: to be masked.
        self.known_values: frozenset[str] = frozenset()

    async def secret(self, name: str, use: SecretUse) -> str:
        """Return a secret for a server or backend; raise KeyError, SecretUnbound, or why not."""
        kept = self._kept_for(name, use)
        if kept is not None and not self._port.is_followed:
            return kept
        try:
            async with asyncio.timeout(ANSWER_SECONDS if kept is None else SHORT_SECONDS):
                return self._keep(name, use, await self._port.ask(name, use))
        except (KeyError, SecretUnbound):
            self._forget(name, use)
            raise
        except (BasculeError, TimeoutError):
            if kept is not None:
                return kept
            self._forget(name, use)
            _away(name)

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call with the name of each secret to be asked for anew; return how to end it."""
        self._subscribers.append(changed)
        return partial(self._subscribers.remove, changed)

    def hear(self, names: frozenset[str]) -> None:
        """Look at these secrets again; ``*`` is all of them."""
        self._changed |= names
        self._news.set()

    async def run(self) -> None:
        """Look at what changed, and tell whoever uses it, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            names, self._changed = self._changed, set()
            for name in sorted(self._names(names)):
                if await self._is_another(name):
                    for changed in tuple(self._subscribers):
                        changed(name)

    def _names(self, names: set[str]) -> set[str]:
        asked = {name for name, *_ in (*self._kept, *self._lacking)}
        return asked if ALL_NAMES in names else asked & names

    async def _is_another(self, name: str) -> bool:
        """Say whether somebody here has another value of a secret than would be given now."""
        if any(place[0] == name for place in self._lacking):
            return True  # whoever lacks it tries again
        uses = [kept for place, kept in self._kept.items() if place[0] == name]
        for kept in uses:
            try:
                if await self.secret(name, kept.use) != kept.value:
                    return True
            except (KeyError, ServerUnavailable):
                return True
        return False

    def _kept_for(self, name: str, use: SecretUse) -> str | None:
        kept = self._kept.get((name, use.kind, use.id))
        return kept.value if kept is not None and kept.use == use else None

    def _keep(self, name: str, use: SecretUse, value: str) -> str:
        place = name, use.kind, use.id
        self._lacking.pop(place, None)
        self._kept.pop(place, None)
        self._kept[place] = _Kept(use, value)
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        if value not in self.known_values:  # others compare it by identity
            self.known_values |= {value}
        return value

    def _forget(self, name: str, use: SecretUse) -> None:
        place = name, use.kind, use.id
        self._kept.pop(place, None)
        self._lacking.pop(place, None)
        self._lacking[place] = use
        while len(self._lacking) > MOST_KEPT:
            del self._lacking[next(iter(self._lacking))]


def _away(name: str) -> NoReturn:
    """Say that it is not there; where the control plane is, callers are not told."""
    raise ServerUnavailable(
        f"the secret {name!r} is at the control plane, which cannot be asked for it now, and this "
        "node was not given it before",
        reason="env_missing",
    ) from None
