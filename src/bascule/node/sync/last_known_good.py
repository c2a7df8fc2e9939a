"""What a node knows, kept on its disk: it starts from that when its control plane is away.

The file is sealed under a key of the node's token, since records may hold literal values; the first
line says in the clear whose it is and of which place in which registry's history, and is
authenticated with the rest. Values of the secret store are never in it. Whoever has the disk can
put an older file of the same token in its place: it is taken, for as long as it may be trusted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.log_lines import say
from bascule.auth.encryption import NotOpened, decrypted, encrypted
from bascule.auth.keys import KeyLabel, hkdf_sha256
from bascule.auth.token_record import TokenRecord
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.db.private_files import sweep_unfinished, sync_folder, write_private
from bascule.model.snapshot import Snapshot
from bascule.node.changes import News
from bascule.node.sync.judging import is_stale

FORMAT = 1
FILE_NAME = "last-known-good"
SET_ASIDE = ".set-aside"
_INFO = b"lkg"
_SALT_BYTES = 32
#: The pause between two writes, after one that failed, and where only the time has moved on.
WRITE_SECONDS = 1.0
FAILED_SECONDS = 10.0
CONFIRM_SECONDS = 300.0

logger = logging.getLogger("bascule.sync")


class Knowledge(Struct, frozen=True, kw_only=True):
    """All that a node needs of its control plane to serve, and when that last spoke.

    ``tokens`` are records of client tokens, whose digests ``keys["token-digest"]`` checks; ``keys``
    are derived ones, never the root.
    """

    snapshot: Snapshot
    tokens: tuple[TokenRecord, ...] = ()
    keys: Mapping[KeyLabel, bytes] = {}
    confirmed_at: float

    def is_stale(self, now: float, max_stale: float) -> bool:
        """Say whether it is too old to decide by."""
        return is_stale(self.confirmed_at, now, max_stale)

    def says_the_same(self, other: Knowledge | None) -> bool:
        """Say whether two differ in nothing but in when they were confirmed."""
        return other is not None and replace(self, confirmed_at=other.confirmed_at) == other


class SetAside(Struct, frozen=True):
    """A file that was not taken: where it is now, and why."""

    path: Path
    reason: str


class _Head(Struct, frozen=True, kw_only=True):
    """The first line of the file, in the order in which it is written."""

    format: int
    node: str
    store_id: str
    revision: int
    mark: str
    salt: bytes


class _Format(Struct, frozen=True):
    """What the first line of every format says."""

    format: int


class _NotTaken(Exception):
    """Why a file is set aside."""


class LastKnownGood:
    """The file of one node. ``load`` it before the first ``keep``; ``close`` writes the rest.

    One task writes, in a thread: at most once a second, the newest. What cannot be written is said
    in the log and tried again.
    """

    def __init__(self, path: Path, node: str, token: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._node = node
        self._token = token.encode()
        self._clock = clock
        self._waiting: Knowledge | None = None
        self._is_unwanted = False
        self._written: Knowledge | None = None
        self._not_before = clock.monotonic()
        self._news = News()
        self._closing = False
        self._writer: asyncio.Task[None] | None = None
        #: Why the file could not be written the last time, if so.
        self.problem: str | None = None

    def load(self) -> Knowledge | SetAside | None:
        """Return what was kept; None where nothing was. What cannot be taken is set aside."""
        try:
            content = _read(self._path)
            return None if content is None else self._opened(content)
        except (OSError, _NotTaken) as error:
            return self._set_aside(str(error))

    def keep(self, knowledge: Knowledge) -> None:
        """Have this written soon, in place of what still waits."""
        if self._closing:
            raise RuntimeError("what is known is kept until it is closed")
        self._waiting, self._is_unwanted = knowledge, False
        self._news.tell()
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())

    def discard(self) -> None:
        """Have the file taken away, in place of what still waits: it may not be started from."""
        self._waiting, self._is_unwanted = None, True
        self._news.tell()
        if self._writer is None and not self._closing:
            self._writer = asyncio.create_task(self._write_all())

    async def close(self) -> None:
        """Write what still waits, and end."""
        self._closing = True
        self._news.tell()
        if self._writer is not None:
            await self._writer

    async def _write_all(self) -> None:
        while not self._closing:
            await self._news.wait(self._clock, self._pause())
            if self._pause() == 0:
                await self._write()
            self._remove_unwanted()
        if self._waiting is not None:
            await self._write()
        self._remove_unwanted()

    def _remove_unwanted(self) -> None:
        if not self._is_unwanted:
            return
        self._written = None
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            words = f"{self._path}: cannot be taken away: {error.strerror}; do it before a start"
            say(logger, logging.ERROR, words)

    def _pause(self) -> float | None:
        """Return how long what waits has to; None where nothing does."""
        if self._waiting is None:
            return None
        due = self._not_before
        if self.problem is None and self._waiting.says_the_same(self._written):
            due += CONFIRM_SECONDS - WRITE_SECONDS
        return max(0.0, due - self._clock.monotonic())

    async def _write(self) -> None:
        knowledge, self._waiting = self._waiting, None
        if knowledge is None:
            return
        try:
            await asyncio.to_thread(self._put, knowledge)
        except OSError as error:
            self._waiting = self._waiting or knowledge
            self._not_before = self._clock.monotonic() + FAILED_SECONDS
            self._complain(f"{self._path}: cannot be written: {error.strerror}")
        else:
            self._written, self.problem = knowledge, None
            self._not_before = self._clock.monotonic() + WRITE_SECONDS

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            words = f"{problem}; without it this node cannot start while its control plane is away"
            say(logger, logging.WARNING, words)
        self.problem = problem

    def _put(self, knowledge: Knowledge) -> None:
        if self._written is None:
            sweep_unfinished(self._path)
        at = knowledge.snapshot.position
        salt = secrets.token_bytes(_SALT_BYTES)
        head = msgspec.json.encode(
            _Head(
                format=FORMAT,
                node=self._node,
                store_id=at.store_id,
                revision=at.revision,
                mark=at.mark,
                salt=salt,
            )
        )
        sealed = encrypted(self._key(salt), msgspec.json.encode(knowledge), head)
        write_private(self._path, head + b"\n" + sealed)
        sync_folder(self._path)

    def _opened(self, content: bytes) -> Knowledge:
        line, _, sealed = content.partition(b"\n")
        head = _head(line)
        if head.node != self._node:
            raise _NotTaken(f"it is of node {head.node!r}, and this is {self._node!r}")
        try:
            plain = decrypted(self._key(head.salt), sealed, line)
            return msgspec.json.decode(plain, type=Knowledge)
        except NotOpened:
            raise _NotTaken(
                "it does not open: the node's token is another one now, or the file was changed"
            ) from None
        except msgspec.MsgspecError as error:
            raise _NotTaken(f"its records are not those of this version: {error}") from None

    def _key(self, salt: bytes) -> bytes:
        return hkdf_sha256(self._token, salt=salt, info=_INFO)

    def _set_aside(self, reason: str) -> SetAside:
        aside = self._path.with_name(self._path.name + SET_ASIDE)
        try:
            self._path.replace(aside)
        except OSError as error:
            aside, reason = self._path, f"{reason}; nor can it be renamed: {error.strerror}"
        words = f"what this node knew is not taken: {reason}; it is in {aside}"
        say(logger, logging.WARNING, words)
        return SetAside(aside, reason)


def _read(path: Path) -> bytes | None:
    """Return a file's content; None where there is no file. A link is no file."""
    try:
        with open(path, "rb", opener=_open_file) as file:
            return file.read()
    except FileNotFoundError:
        return None


def _open_file(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe is not waited for


def _head(line: bytes) -> _Head:
    try:
        found = msgspec.json.decode(line, type=_Format).format
        if found > FORMAT:
            raise _NotTaken(f"it has format {found}, of a newer Bascule; this one knows {FORMAT}")
        return msgspec.json.decode(line, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _NotTaken("it is broken: its first line does not say what it is") from None
