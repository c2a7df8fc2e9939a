"""What a node starts from: the word of its control plane, or what it kept when that is away.

A node is who its token says it is. The control plane is asked that first: whoever it refuses does
not start, whatever is on the disk. Only when it does not answer, what was kept is enough.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from bascule.app.data_dir import NODE_FILE, STORE_FILE
from bascule.asgi.serve import CannotServe
from bascule.audit.log_lines import say
from bascule.auth.keys import KeyLabel
from bascule.auth.node_tokens import NodeTokens, taken
from bascule.auth.token_record import TokenRecord
from bascule.client.followed import ClientToken, Welcome
from bascule.client.http import Unreachable
from bascule.client.rpc import NeedsTls, RpcSource
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.private_files import private_folder, write_private
from bascule.errors import BasculeError
from bascule.model.snapshot import Snapshot
from bascule.node.sync.follower import Follower, Jitter, SyncSettings
from bascule.node.sync.last_known_good import FILE_NAME, Knowledge, LastKnownGood

#: How long one question may take.
_ANSWER_SECONDS = 5.0
#: A start tries again as a node does that has lost its control plane.
_RHYTHM = SyncSettings()
#: What the control plane says to those whom it will not have.
_REFUSALS = frozenset({"unauthenticated", "forbidden", "invalid_request"})
#: Another process is this node. It may be one that was killed, whose connection still counts.
_TAKEN = "already_exists"

logger = logging.getLogger("bascule.node")
T = TypeVar("T")


class OtherNode(BasculeError):
    """The token is not that of the node that was meant."""

    code = "invalid_request"

    def __init__(self, wanted: str, found: str | None) -> None:
        super().__init__(
            f"--name: this is node {found!r} and not {wanted!r}, by its token; use the token of "
            f"{wanted!r}, or leave --name out"
        )


class NothingKnown(BasculeError):
    """The control plane is away, and nothing was kept that a node could serve."""

    code = "unreachable"


class Start(Struct, frozen=True, kw_only=True):
    """What a node starts from; ``away`` says why the control plane is not heard, if so."""

    node: str
    kept: LastKnownGood
    known: Knowledge | None
    away: str | None


class Beginner:
    """Finds out what a node starts from; ``seconds`` is how long it may wait for its first word."""

    def __init__(
        self,
        source: RpcSource,
        data: Path,
        seconds: float,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Jitter = random.uniform,
    ) -> None:
        self._source = source
        self._jitter = jitter
        self._data = data
        self._clock = clock
        self._until = clock.monotonic() + seconds
        self._failures = 0

    async def start(self, name: str | None, token: str) -> Start:
        """Return what a node with a token starts from; ``name`` is who it has to be."""
        welcome, away = await self._introduced()
        node = node_name(self._data) if welcome is None else welcome.node
        if name is not None and node not in (None, name):
            raise OtherNode(name, node)
        if welcome is not None:
            write_private(self._data / NODE_FILE, f"{welcome.node}\n".encode())
        node = node or name
        if node is None:
            raise NothingKnown(f"{away}; and which node this is, it does not know: give --name")
        kept = LastKnownGood(self._data / FILE_NAME, node, token)
        found = await asyncio.to_thread(kept.load)
        if isinstance(found, Knowledge):
            return Start(node=node, kept=kept, known=found, away=away)
        if away is not None:
            why = "" if found is None else f", as {found.path} is not taken: {found.reason}"
            raise NothingKnown(f"{away}; and this node has nothing that it could serve{why}")
        return Start(node=node, kept=kept, known=None, away=None)

    async def first_snapshot(self) -> Snapshot:
        """Return all that the control plane has; raise where it does not come in time."""
        while True:
            try:
                return await _in_time(self._source.snapshot(), self._left())
            except BasculeError as error:
                self._refuse_final(error)
            await self._pause()

    async def first_tokens(self, memory: NodeMemory, follower: Follower) -> None:
        """Wait until the node was told whose tokens it takes; raise where that does not come."""
        try:
            async with asyncio.timeout(self._left()):
                await memory.given.wait()
        except TimeoutError:
            words = follower.problem or "the control plane has not said whose tokens count"
            raise NothingKnown(words) from None

    async def _introduced(self) -> tuple[Welcome | None, str | None]:
        """Ask the control plane who this is; return why not, where the node can do without."""
        is_kept = (self._data / FILE_NAME).exists()
        while True:
            try:
                return await _in_time(self._source.introduction(), _ANSWER_SECONDS), None
            except BasculeError as error:
                self._refuse_final(error)
                if is_kept and error.code != _TAKEN:
                    return None, str(error)
                say(logger, logging.INFO, f"waiting for the control plane: {error}")
            await self._pause()

    async def _pause(self) -> None:
        self._failures += 1
        await self._clock.sleep(_RHYTHM.delay(self._failures, self._jitter))

    def _refuse_final(self, error: BasculeError) -> None:
        """Raise what waiting does not mend, and everything once it was waited for long enough."""
        hopeless = isinstance(error, NeedsTls) or error.code in _REFUSALS
        if hopeless or self._clock.monotonic() >= self._until:
            raise error

    def _left(self) -> float:
        return max(_ANSWER_SECONDS, self._until - self._clock.monotonic())


async def _in_time(work: Awaitable[T], seconds: float) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise Unreachable(f"the control plane has not answered within {seconds:g} s") from None


def node_name(data: Path) -> str | None:
    """Return which node a directory is of, if it was one before."""
    try:
        return (data / NODE_FILE).read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def prepare(data: Path) -> None:
    """Make a node's directory; refuse one that a registry is in: it has a key and rules of others.

    Nothing of it would be read, and each would take the other's journal for its own.
    """
    private_folder(data)
    if (data / STORE_FILE).exists():
        raise CannotServe(
            f"{data} is the data directory of a registry, and a node needs one of its own: give "
            "another --data-dir"
        )


class NodeMemory:
    """What a node knows: whose tokens count, in force at the guard, and all of it on the disk."""

    def __init__(self, tokens: NodeTokens) -> None:
        self._tokens = tokens
        self._records: tuple[TokenRecord, ...] = ()
        self._keys: Mapping[KeyLabel, bytes] = {}
        self._follower: Follower | None = None
        self._kept: LastKnownGood | None = None
        self._said = True, False
        #: Set once the control plane has said whose tokens count.
        self.given = asyncio.Event()
        #: Set once that is known, or known not to come for now.
        self.settled = asyncio.Event()

    def recall(self, known: Knowledge) -> None:
        """Begin with what was kept."""
        self._records, self._keys = known.tokens, known.keys
        self._tokens.take(self._records, self._keys)

    def follow(self, follower: Follower, kept: LastKnownGood) -> None:
        """Keep from now on what a follower puts in force."""
        self._follower, self._kept = follower, kept
        self._say(follower.problem)
        follower.on_word = self._heard

    def take(self, tokens: tuple[ClientToken, ...], keys: Mapping[str, bytes]) -> None:
        """Know these tokens and no others (``RpcSource``)."""
        self._records, self._keys = taken(tokens, keys)
        self._tokens.take(self._records, self._keys)
        self.given.set()
        self.settled.set()
        self._keep()

    def _heard(self) -> None:
        problem = None if self._follower is None else self._follower.problem
        self._say(problem)
        if problem is None:
            self._keep()
        else:
            self.settled.set()
        if self._follower is not None and self._follower.refusal is not None:
            self._forget()

    def _forget(self) -> None:
        """Keep nothing for a later start of a node that its control plane refuses."""
        if self._kept is not None:
            self._kept.discard()

    def _say(self, problem: str | None) -> None:
        """Say once that the control plane is not followed, or refuses the node; once that it is."""
        refusal = None if self._follower is None else self._follower.refusal
        said = problem is None, refusal is not None
        if said == self._said:
            return
        self._said = said
        if refusal is not None:
            say(logger, logging.ERROR, refusal)
        elif problem is None:
            say(logger, logging.INFO, "the control plane is followed again")
        else:
            words = "the control plane is not followed, and this node serves what it knows"
            say(logger, logging.WARNING, f"{words}: {problem}")

    def _keep(self) -> None:
        """Have all that is known written; before tokens came there is nothing to start from."""
        follower, kept = self._follower, self._kept
        if follower is None or kept is None or not self._keys:
            return
        kept.keep(
            Knowledge(
                snapshot=follower.snapshot,
                tokens=self._records,
                keys=self._keys,
                confirmed_at=follower.confirmed_at,
            )
        )
