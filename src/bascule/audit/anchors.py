"""Anchors: signed lines that say how far the ledger was and what its last hash was.

They are appended to a file that is meant for another disk or owner. Each names the line before it
and the key that signs it; a new key is named by a line that the old one signs. Whoever holds such
a line, and the public key, finds every later change to the rows that it covers.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from bascule.audit.chain import GENESIS
from bascule.db.private_files import KeyUnusable, private_key, read_key
from bascule.errors import BasculeError, InvalidRecord

logger = logging.getLogger("bascule.ledger")

KEY_NAME = "ledger.key"
_SEED_BYTES = 32
_PREFIX = "ed25519:"
#: What is signed begins with this, so that no other signed text can be taken for an anchor.
_CONTEXT = b"bascule ledger anchor 1\n"
_OPENING = b'{"kind":'
#: How much of the file's end is read; a line has about 500 bytes.
_TAIL = 65_536
#: The log has an anchor at most this often, at its usual level.
_SAID_SECONDS = 10.0

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class AnchorsUnavailable(BasculeError):
    """No anchor can be added now; those that are there are as they were."""

    code = "store_unavailable"


class Anchor(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line: the ledger had ``number`` rows, the last with the hash ``tip``.

    A line of kind ``key`` also says which key signs from there on.
    """

    kind: Literal["checkpoint", "key"]
    ledger_id: str
    key_id: str
    public_key: str
    number: Annotated[int, Meta(ge=0)]
    tip: Digest
    made_at: float
    before: Digest
    next_key: str | None = None
    signature: str = ""

    @property
    def signed(self) -> bytes:
        """Return the bytes that are signed."""
        return _CONTEXT + _encode(replace(self, signature=""))


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Anchor)


def parsed(line: bytes) -> Anchor | None:
    """Return the anchor of a line; None unless it is spelled as we spell it."""
    try:
        anchor = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return anchor if _encode(anchor) == line else None


def line_digest(line: bytes | None) -> str:
    """Return what the next line says of this one; of no line, zeros."""
    return GENESIS.hex() if line is None else hashlib.sha256(line).hexdigest()


def key_id(public_key: str) -> str:
    """Return a short name for a public key."""
    return hashlib.sha256(public_key.encode()).hexdigest()[:16]


def read_public_key(text: str) -> str:
    """Return a public key that somebody gave, without what is around it."""
    key = text.strip()
    if _public_bytes(key) is None:
        raise InvalidRecord([f"public_key: must be {_PREFIX} and 43 letters of base64url"])
    return key


def is_signed(anchor: Anchor) -> bool:
    """Say whether an anchor is signed by the key that it names."""
    # 50 ms and 8 MB, for those who need it.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    public, signature = _public_bytes(anchor.public_key), _bytes(anchor.signature)
    if public is None or signature is None or anchor.key_id != key_id(anchor.public_key):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, anchor.signed)
    except (InvalidSignature, ValueError):
        return False
    return True


class SigningKey:
    """An Ed25519 key; the private part shows in no message and no ``repr``."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    @cached_property
    def public(self) -> str:
        """Return the public part as one line of text, to be kept elsewhere."""
        return _PREFIX + _text(self._private.public_key().public_bytes_raw())

    @property
    def key_id(self) -> str:
        """Return its short name."""
        return key_id(self.public)

    def sign(self, anchor: Anchor) -> bytes:
        """Return the line of an anchor, signed by this key."""
        named = replace(anchor, key_id=self.key_id, public_key=self.public)
        return _encode(replace(named, signature=_text(self._private.sign(named.signed))))

    @cached_property
    def _private(self):  # noqa: ANN202 - its type is not imported before it is needed
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - as above
            Ed25519PrivateKey,
        )

        return Ed25519PrivateKey.from_private_bytes(self._seed)


class Anchors:
    """The anchor file of one ledger, and the key that signs its lines.

    ``last`` is the last line that the ledger itself has: a new file goes on from there. Several
    processes may add; each reads the end of the file first.
    """

    def __init__(
        self, file: Path, key_file: Path, ledger_id: str, *, last: bytes | None = None
    ) -> None:
        self.file = file
        self._key_file = key_file
        self._next_key_file = key_file.with_name(f"{key_file.name}.next")
        self._ledger_id = ledger_id
        self._last = last
        self._said_at: float | None = None

    def add(self, number: int, tip: bytes, now: float) -> bytes:
        """Sign that the ledger has so many rows, append that line, and return it."""
        with self._opened() as end:
            line = self._key(end).sign(self._anchor(end, number, tip.hex(), now))
            end.append(line)
        self._last = line
        self._say(number, tip, now)
        return line

    def _say(self, number: int, tip: bytes, now: float) -> None:
        """Say it in the log: that too is a place where an anchor is kept; not a flood of them."""
        often = self._said_at is not None and 0 <= now - self._said_at < _SAID_SECONDS
        level = logging.DEBUG if often else logging.INFO
        logger.log(level, "checkpoint: row %d, tip %s, in %s", number, tip.hex(), self.file)
        self._said_at = self._said_at if often else now

    def renew(self, now: float) -> tuple[bytes, bytes]:
        """Sign with a new key from now on; return the two lines that say so.

        The old key names the new one, which signs the same row again. The new key is in a file of
        its own until both lines are durable, so that a crash leaves one of them usable.
        """
        with self._opened() as end:
            old = self._key(end)
            self._next_key_file.unlink(missing_ok=True)
            new = SigningKey(private_key(self._next_key_file, _SEED_BYTES))
            number, tip = (end.anchor.number, end.anchor.tip) if end.anchor else (0, GENESIS.hex())
            change = replace(self._anchor(end, number, tip, now), kind="key", next_key=new.public)
            named = old.sign(change)
            taken = new.sign(
                replace(change, kind="checkpoint", next_key=None, before=line_digest(named))
            )
            end.append(named + b"\n" + taken)
            self._next_key_file.replace(self._key_file)
        self._last = taken
        logger.info("the key %s of the ledger is followed by %s", old.key_id, new.key_id)
        return named, taken

    def public_key(self) -> str:
        """Return the public part of the key that signs now."""
        with self._opened() as end:
            return self._key(end).public

    def check(self, number: int, hash_of: Callable[[int], bytes | None]) -> None:
        """Raise AnchorsUnavailable if the last line is about other rows than the ledger has.

        ``hash_of`` says what the hash of a row is, None for one that was cut off.
        """
        if self.file.exists():
            with self._opened() as end:
                last = end.anchor
                self._refuse_other(last)
                if last is not None:
                    self._refuse_changed(last, number, hash_of(last.number))

    def after(self, line: bytes) -> list[bytes]:
        """Return the lines that follow this one: what a killed process did not get to keep."""
        with self._opened() as end:
            return end.lines[end.lines.index(line) + 1 :] if line in end.lines else []

    def _anchor(self, end: _End, number: int, tip: str, now: float) -> Anchor:
        last = end.anchor
        self._refuse_other(last)
        if last is not None and number <= last.number:
            self._refuse_changed(last, number, bytes.fromhex(tip))
        return Anchor(
            kind="checkpoint",
            ledger_id=self._ledger_id,
            key_id="",
            public_key="",
            number=number,
            tip=tip,
            made_at=now,
            before=line_digest(end.line or self._last),
        )

    def _refuse_other(self, last: Anchor | None) -> None:
        if last is not None and last.ledger_id != self._ledger_id:
            raise AnchorsUnavailable(
                f"{self.file} has anchors of another ledger: put that one back, or name a new file"
            )

    def _refuse_changed(self, last: Anchor, number: int, found: bytes | None) -> None:
        if number < last.number or found not in (None, bytes.fromhex(last.tip)):
            raise AnchorsUnavailable(
                f"{self.file} has an anchor for row {last.number}, and the ledger goes to row "
                f"{number} or has changed: run bascule audit verify"
            )

    def _key(self, end: _End) -> SigningKey:
        """Return the key that signs the next line; the file may have been replaced meanwhile."""
        last = end.anchor
        if last is None:
            return SigningKey(private_key(self._key_file, _SEED_BYTES))
        expected = last.next_key or last.public_key
        if self._next_key_file.exists():
            waiting = SigningKey(read_key(self._next_key_file, _SEED_BYTES))
            if waiting.public == expected:  # whoever renewed it was killed before this
                self._next_key_file.replace(self._key_file)
        try:
            key = SigningKey(read_key(self._key_file, _SEED_BYTES))
        except FileNotFoundError:
            raise KeyUnusable(self._other_key("is missing", expected)) from None
        if key.public != expected:
            raise KeyUnusable(self._other_key("is another key", expected))
        return key

    def _other_key(self, what: str, expected: str) -> str:
        return (
            f"{self._key_file} {what}: the last line of {self.file} asks for key "
            f"{key_id(expected)}; restore it from a backup, or move {self.file} away to begin with "
            "another key"
        )

    @contextmanager
    def _opened(self) -> Generator[_End, None, None]:
        """Hold the file; say what cannot be done with it."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(self.file, flags, 0o600), "rb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield _End(file.fileno(), self.file)
        except BlockingIOError:
            raise AnchorsUnavailable(f"{self.file} is in use by another process") from None
        except OSError as error:
            raise AnchorsUnavailable(
                f"{error.filename or self.file}: {error.strerror or error}; no anchor was added"
            ) from error


class _End:
    """The end of an anchor file that is open."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        size = os.fstat(file).st_size
        content = os.pread(file, _TAIL, max(0, size - _TAIL))
        if size <= _TAIL and not _OPENING.startswith(content[: len(_OPENING)]):
            raise AnchorsUnavailable(f"{path} is no file of anchors: name another")
        #: Half a line at the end was never acknowledged, and the next must not be joined to it.
        self._torn = not content.endswith(b"\n") and size > 0
        self.lines = [line for line in content.split(b"\n") if parsed(line)]
        self.line = self.lines[-1] if self.lines else None
        self.anchor = parsed(self.line) if self.line else None
        if size > _TAIL and self.anchor is None:
            raise AnchorsUnavailable(f"{path} does not end with an anchor: name another")

    def append(self, lines: bytes) -> None:
        content = b"\n" * self._torn + lines + b"\n"
        if os.write(self._file, content) != len(content):
            raise OSError(0, "there was room for half a line")
        os.fdatasync(self._file)


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes(text: str) -> bytes | None:
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return content if _text(content) == text else None


def _public_bytes(key: str) -> bytes | None:
    content = _bytes(key.removeprefix(_PREFIX)) if key.startswith(_PREFIX) else None
    return content if content is not None and len(content) == _SEED_BYTES else None


def set_aside(file: Path, ledger_id: str) -> None:
    """Give a file of anchors a name with the ledger that it is of; one that is there stays."""
    count = 1
    aside = file.with_name(f"{file.name}.{ledger_id}")
    while aside.exists():
        count += 1
        aside = file.with_name(f"{file.name}.{ledger_id}.{count}")
    try:
        file.replace(aside)
    except FileNotFoundError:
        return
    except OSError as error:
        raise AnchorsUnavailable(
            f"{file} cannot be renamed to {aside.name}: {error.strerror or error}; move it away, "
            "or name another in ledger.anchor_file, and try again"
        ) from error
    logger.warning("the anchors of ledger %s are kept in %s", ledger_id, aside)


def refuse_lost_key(key_file: Path, anchors: Path) -> None:
    """Refuse a key that others may read, or that is missing where it has signed already."""
    if key_file.exists():
        read_key(key_file, _SEED_BYTES)
    elif anchors.exists() and anchors.stat().st_size:
        raise KeyUnusable(
            f"{key_file} is missing, and {anchors} has lines that it signed: restore it from a "
            "backup, or move the anchors away to begin with another key"
        )
