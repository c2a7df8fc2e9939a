"""A registry behind gRPC, as a node follows it: one stream has all that the node is told.

``RpcSource`` is a ``RegistrySource``. A question for the newest snapshot opens the stream and reads
until all there is has been said; the watch goes on with the same stream. While that lives, only the
newest revision is asked for. Client tokens and keys are handed on once the registry that sends them
is followed, so that one which is doubted brings none.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

# Before grpc is imported: this process starts others, and no handler of grpc's may run in them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from msgspec import Struct

from bascule.client.followed import (
    Bookmark,
    Bounds,
    ClientToken,
    ClientTokens,
    FollowReader,
    Said,
    SecretsChanged,
    TooMuch,
    Welcome,
    WorkOrder,
)
from bascule.client.http import ApiError, Unreachable
from bascule.client.rpc_failures import errors_of
from bascule.client.snapshots import Report, refuse_parted, shortened, words_of
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.lifetime import Lifetime
from bascule.model.kinds import Kind, Record
from bascule.model.snapshot import Position, Snapshot, SnapshotChange
from bascule.model.worker import WORKER_METADATA
from bascule.outbound.egress import names_loopback
from bascule.wire.api.nodes import MAX_SERVERS
from bascule.wire.pb import node_pb2 as pb
from bascule.wire.pb import registry_pb2
from bascule.wire.protobuf import struct_message

SERVICE = "bascule.registry.v1.NodeService"
#: The smallest answer that has the newest position.
HEAD = "/bascule.registry.v1.McpRegistryService/GetPlatform"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
ANSWER_SECONDS = 10.0
#: A message of more bytes than this is read beside the event loop.
_LARGE = 64 * 1024
#: How long what the registry has already may take to come on the stream.
_REACH_SECONDS = 2.0
#: A stream that was silent for so many bookmarks is lost.
_SILENT_BOOKMARKS = 2.5
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A connection whose other side is gone without a word is given up after 20 seconds.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # how long one attempt to connect may take
    ("grpc.enable_retries", 0),  # whoever follows tries again
    # A new connection is one, and may lead to another replica.
    ("grpc.use_local_subchannel_pool", 1),
)
#: The position is not in what the registry can tell the changes after: it is asked for the whole.
_ASK_ANEW = frozenset({"store_changed", "compacted", "future_revision"})
#: Is given all client tokens, and keys by label.
OnTokens: TypeAlias = Callable[[tuple[ClientToken, ...], Mapping[str, bytes]], object]
#: Is given the names of secrets that may be others now; ``*`` is all of them.
OnSecrets: TypeAlias = Callable[[frozenset[str]], object]
OnWork: TypeAlias = Callable[[WorkOrder], object]


class NeedsTls(BasculeError):
    """A registry elsewhere would be reached in the clear."""

    code = "invalid_request"


class RpcAccess(Struct, frozen=True, kw_only=True):
    """How a registry is reached: with TLS where ``ca`` or ``certificate`` are given.

    They are PEM files: whose certificates are taken, and who the node is by its own, with ``key``.
    ``insecure`` is for a network that others cannot read.
    """

    token: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    #: Which of several processes of the node this is.
    worker: int | None = None

    def channel(self, target: str) -> aio.Channel:
        """Return a new connection; raise NeedsTls or, for files, Unreachable."""
        if self.ca is not None or self.certificate is not None:
            return aio.secure_channel(target, self._credentials(target), options=_OPTIONS)
        host = target.rpartition(":")[0].removeprefix("[").removesuffix("]")
        if not self.insecure and not target.startswith("unix:") and not names_loopback(host):
            raise NeedsTls(
                f"{target}: is reached without TLS on this machine only, as the node's token and "
                "what it is told would be readable: name the file of its certificate authority"
            )
        return aio.insecure_channel(target, options=_OPTIONS)

    def _credentials(self, target: str) -> grpc.ChannelCredentials:
        try:
            ca, certificate = _bytes(self.ca), _bytes(self.certificate)
            # A file may have both.
            key = certificate if self.key is None else _bytes(self.key)
        except OSError as error:
            words = f"{target}: {error.filename}: cannot be read: {error.strerror}"
            raise Unreachable(words) from error
        return grpc.ssl_channel_credentials(ca, key, certificate)


def _bytes(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()


class RpcSource(Lifetime):
    """A ``RegistrySource`` over one stream of ``NodeService``. Use it with ``async with``.

    ``on_tokens`` is told of tokens whenever they are others.
    """

    def __init__(
        self,
        target: str,
        access: RpcAccess,
        *,
        on_tokens: OnTokens | None = None,
        bounds: Bounds | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Follow the registry at HOST:PORT."""
        self._target = target
        self._access = access
        self._on_tokens = on_tokens
        #: Is told of secrets that may be others than they were.
        self.on_secrets: OnSecrets | None = None
        self._bounds = bounds or Bounds()
        self._clock = clock
        self._process = secrets.token_hex(8)
        self._asking = asyncio.Lock()
        self._stream: _Stream | None = None
        self._tokens: ClientTokens | None = None
        self._secrets_version = ""
        self._has_spoken = False
        #: Is told what to do, of streams that are followed.
        self.on_work: OnWork | None = None
        #: Says which of that is under way, for the next stream.
        self.at_work: Callable[[], Iterable[str]] = tuple
        #: What the registry had the last time that it did not know where this node is.
        self._replaced: Snapshot | None = None
        #: Who the node is to the registry that it follows; None before it ever did.
        self.welcome: Welcome | None = None

    async def close(self) -> None:
        """Let the connection go."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    # --- following

    async def introduction(self) -> Welcome:
        """Ask who the node is to the registry; nothing of what that says is followed yet."""
        async with self._asking:
            stream = await self._open(None)
            try:
                return stream.welcome
            finally:
                await self._give_up(stream)

    async def snapshot(self, known: Snapshot | None = None) -> Snapshot:
        """Return everything at the newest revision; ``known`` itself if it is that.

        Raise HistoryParted where ``known`` is not in its past, and only the registry can tell.
        """
        async with self._asking:
            return await self._newest(known)

    async def _newest(self, known: Snapshot | None) -> Snapshot:
        stream = self._stream
        if known is not None and stream is not None and stream.is_at(known.position):
            head, _ = await self._head()
            if await stream.reaches(head):
                return known  # or what was said meanwhile
        if known is None or not known.store_id:
            return await self._begun(None)
        try:
            return await self._begun(known)
        except TooMuch:
            return await self._begun(None)  # too far behind: the whole is less
        except ApiError as error:
            if error.code not in _ASK_ANEW:
                raise
            refusal = error.code
        found = await self._replacement()
        if refusal == "store_changed":
            refuse_parted(known.position, found.position)
        return found

    async def _replacement(self) -> Snapshot:
        """Return all of a registry that does not know where this node is: once while it stays so.

        It may be doubted, and asked for again and again by thousands.
        """
        had = self._replaced
        if had is not None and await self._head() == (had.position, had.predecessor):
            return had
        self._replaced = found = await self._begun(None)
        return found

    async def watch(self, since: Snapshot) -> AsyncGenerator[SnapshotChange, None]:
        """Return the changes after a snapshot; idle ones repeat the revision."""
        async with self._asking:
            stream = self._stream
            if stream is None or stream.is_read or not stream.is_at(since.position):
                stream = await self._open(since)
            stream.is_read, self._replaced = True, None
        return self._changes(stream)

    async def _head(self) -> tuple[Position, str]:
        """Ask for the newest position, and for the store that this one replaced."""
        try:
            answer = await self._ask(HEAD, b"", ANSWER_SECONDS)
            found = registry_pb2.GetPlatformResponse.FromString(answer)
        except DecodeError:
            raise Unreachable(f"{self._target}: an answer that cannot be read") from None
        return Position(found.store_id, found.revision, found.mark), found.predecessor

    async def _begun(self, known: Snapshot | None) -> Snapshot:
        """Open a stream after a snapshot, or from the beginning; return where it leads to."""
        stream = await self._open(known)
        try:
            return await stream.newest(known)
        except BaseException:
            await self._give_up(stream)
            raise

    async def _open(self, known: Snapshot | None) -> _Stream:
        await self.close()
        request = pb.FollowRequest(
            tokens_version="" if self._tokens is None else self._tokens.version,
            process=self._process,
            version=version("bascule"),
            secrets_version=self._secrets_version,
            works=self.at_work(),
        )
        if known is not None:
            request.since_revision = known.revision
            request.store_id, request.mark = known.store_id, known.mark
            request.part = known.part
        channel = self._access.channel(self._target)
        reader = FollowReader(self._target, self._bounds, self._tokens)
        stream = _Stream(channel, self._target, reader, self._clock)
        self._stream = stream
        try:
            await stream.begin(request.SerializeToString(), self._metadata)
        except BaseException:
            await self._give_up(stream)
            raise
        stream.position = Position() if known is None else known.position
        return stream

    async def _changes(self, stream: _Stream) -> AsyncGenerator[SnapshotChange, None]:
        try:
            self._hand_on(stream)
            async with aclosing(stream.said()) as all_said:
                async for said in all_said:
                    if isinstance(said, Snapshot):
                        raise Unreachable(f"{self._target}: a snapshot that nobody asked for")
                    if isinstance(said, SnapshotChange):
                        yield said
                    elif isinstance(said, Bookmark):
                        at = said.position
                        yield SnapshotChange(at.store_id, at.revision, mark=at.mark)
                    elif isinstance(said, WorkOrder):
                        if self.on_work is not None:
                            self.on_work(said)
                    else:
                        self._hand_on(stream)
        finally:
            await self._give_up(stream)

    async def _give_up(self, stream: _Stream) -> None:
        if self._stream is stream:
            self._stream = None
        await stream.close()

    def _hand_on(self, stream: _Stream) -> None:
        """Take over what a stream that is followed says of the node and of tokens."""
        welcome = self.welcome = stream.welcome
        changed, stream.secrets = stream.secrets, None
        if changed is not None:
            self._secrets_version = changed.version
            if self.on_secrets is not None:
                self.on_secrets(changed.names)
        if stream.tokens is None:
            return
        self._tokens, stream.tokens = stream.tokens, None
        if self._on_tokens is not None:
            self._on_tokens(self._tokens.tokens, welcome.keys)

    # --- the way back

    async def report(self, report: Report) -> None:
        """Tell the registry how the node is."""
        words = map(words_of, report.servers[:MAX_SERVERS])
        servers = [struct_message(pb.ServerStatus, one) for one in words]
        said = pb.ReportRequest(
            state=report.state,
            reason=shortened(report.reason) or "",
            revision=report.revision,
            servers=servers,
        )
        self._has_spoken = True  # also where only the answer is lost
        await self._say(said)

    async def leave(self) -> None:
        """Say goodbye, if the registry may know of this node."""
        if self._has_spoken:
            await self._say(pb.ReportRequest(state="ended"))
            self._has_spoken = False

    async def _say(self, said: pb.ReportRequest) -> None:
        await self.ask("Report", said.SerializeToString())

    @property
    def is_followed(self) -> bool:
        """Say whether a stream of the registry is being read."""
        return self._stream is not None and self._stream.is_read

    async def ask(self, method: str, request: bytes, seconds: float = ANSWER_SECONDS) -> bytes:
        """Call a method of the service that has one answer.

        Raise Unreachable where none comes within so many seconds, ApiError where it is refused.
        """
        return await self._ask(f"/{SERVICE}/{method}", request, seconds)

    async def _ask(self, method: str, request: bytes, seconds: float) -> bytes:
        """Make a call: beside the stream, or alone where there is none."""
        if self._stream is not None:
            return await self._answer(self._stream.channel, method, request, seconds)
        async with self._access.channel(self._target) as channel:
            return await self._answer(channel, method, request, seconds)

    async def _answer(self, channel: Any, method: str, request: bytes, seconds: float) -> bytes:
        with errors_of(self._target):
            call = channel.unary_unary(method)
            return await call(request, metadata=self._metadata, timeout=seconds)

    @property
    def _metadata(self) -> aio.Metadata:
        token, worker = self._access.token, self._access.worker
        own = () if worker is None else ((WORKER_METADATA, str(worker)),)
        return aio.Metadata(("authorization", f"Bearer {token}"), *own)


class _Stream:
    """One connection with the stream on it."""

    def __init__(
        self, channel: aio.Channel, target: str, reader: FollowReader, clock: Clock
    ) -> None:
        self.channel = channel
        self._target = target
        self._reader = reader
        self._clock = clock
        self._heard_at = clock.monotonic()
        self._size = 0
        self._call: Any = None
        self._moved = asyncio.Event()
        #: Whether somebody watches it.
        self.is_read = False
        #: Where what was handed on leads to.
        self.position = Position()
        self.welcome = Welcome("", 0.0)
        #: Those that came and were not yet handed on.
        self.tokens: ClientTokens | None = None
        self.secrets: SecretsChanged | None = None

    async def begin(self, request: bytes, metadata: aio.Metadata) -> None:
        """Open it; raise as the registry refuses it."""
        channel: Any = self.channel  # its types do not say what a call without messages has
        self._call = channel.unary_stream(f"/{SERVICE}/Follow")(request, metadata=metadata)
        said = await self._next()
        if not isinstance(said, Welcome):
            raise Unreachable(f"{self._target}: does not say welcome: is this Bascule?")

    async def newest(self, known: Snapshot | None) -> Snapshot:
        """Read until all there is has been said; return that."""
        records: dict[tuple[Kind, str], Record | None] = {}
        async with aclosing(self.said()) as all_said:
            async for said in all_said:
                if isinstance(said, Snapshot):
                    return said
                if isinstance(said, SnapshotChange):
                    records.update(said.records)
                    self._reader.refuse_too_much(len(records), self._size)
                if isinstance(said, Bookmark) and known is not None:
                    at = said.position
                    if at.agrees(known.position):
                        return known
                    return known.after(SnapshotChange(at.store_id, at.revision, records, at.mark))
        raise Unreachable(f"{self._target}: the stream ended before all was said")

    async def said(self) -> AsyncGenerator[Said, None]:
        """Yield what is said until the registry ends the stream; raise when it is lost."""
        while True:
            said = await self._next()
            if said is None:
                return
            if isinstance(said, ClientTokens):
                self.tokens = said
            elif isinstance(said, SecretsChanged):
                before = frozenset[str]() if self.secrets is None else self.secrets.names
                self.secrets = SecretsChanged(before | said.names, said.version)
            elif isinstance(said, Snapshot | SnapshotChange | Bookmark):
                self._move(said.position)
            yield said

    def is_at(self, position: Position) -> bool:
        """Say whether it lives, and what comes next comes after a position."""
        silent = self._clock.monotonic() - self._heard_at
        lives = silent <= _SILENT_BOOKMARKS * self.welcome.bookmark_seconds
        known = bool(position.store_id and self.position.store_id)
        return known and lives and self.position.agrees(position)

    async def reaches(self, head: Position) -> bool:
        """Say whether what was handed on leads to a position, or soon does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REACH_SECONDS):
                while self._is_before(head):
                    await self._moved.wait()
        at = self.position
        return at.agrees(head) or (at.is_of(head.store_id) and at.revision > head.revision)

    def _is_before(self, head: Position) -> bool:
        at = self.position
        return self.is_read and at.is_of(head.store_id) and at.revision < head.revision

    def _move(self, position: Position) -> None:
        self.position = position
        self._moved.set()
        self._moved = asyncio.Event()

    async def close(self) -> None:
        """Hang up."""
        self.is_read = False
        self._move(Position())
        await self.channel.close()

    async def _next(self) -> Said | None:
        """Return the next whole thing that is said; None at the end."""
        while True:
            with errors_of(self._target):
                data = await self._call.read()
            if not isinstance(data, bytes):  # grpc's mark of the end
                return None
            self._heard_at = self._clock.monotonic()
            self._size += len(data)
            read = self._reader.read
            said = await asyncio.to_thread(read, data) if len(data) > _LARGE else read(data)
            if isinstance(said, Welcome):
                self.welcome = said
            if said is not None:
                return said
