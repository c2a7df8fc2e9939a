"""A file of agents on disk: read whole, edited in place, written whole or not at all.

An edit is read and checked as the whole new file before anything is written; the file is replaced
by a rename, with its mode. Whoever edits holds a lock on the folder, so that the command line and
a process that serves do not overwrite each other.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError, InvalidRecord
from bascule.manager.config import DEFAULTS, AgentsConfig, read_agents
from bascule.manager.document import drop_entry, set_entry
from bascule.manager.record import check_servers
from bascule.model.json import JsonObject
from bascule.wire.records import parse

MAX_BYTES = 4 * 1024 * 1024
LOCK_SECONDS = 5.0
_LOCK_PAUSE = 0.02


class FileBusy(BasculeError):
    """Somebody else is writing the file and does not finish."""

    code = "wrong_state"


class NotWritten(BasculeError):
    """The file cannot be written where it is; it stands as it was."""

    code = "store_unavailable"


class UnknownAgent(BasculeError):
    """There is no agent of this id."""

    code = "not_found"


class AgentsText(Struct, frozen=True):
    """A file as it was read: what it says, its text, and a digest to compare."""

    config: AgentsConfig
    text: str
    digest: str


Edit = Callable[[AgentsText], str]


class AgentsFile:
    """One file of agents.

    ``shared`` says that it is a host application's file with keys of its own.
    """

    def __init__(
        self, path: str | Path, *, shared: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.path = Path(path)
        self._shared = shared
        self._clock = clock

    def read(self) -> AgentsText:
        """Read and check the file; raise InvalidRecord with every problem."""
        return self.parse(self._bytes())

    def digest(self) -> str | None:
        """Return the digest of what is there now, or None when nothing can be read."""
        try:
            return _digest(self._bytes())
        except InvalidRecord:
            return None

    def parse(self, data: bytes) -> AgentsText:
        """Read and check a text that could be this file; raise InvalidRecord."""
        source = str(self.path)
        plain = parse(data, "toml", source=source)
        config = read_agents(plain, source=source, shared=self._shared)
        config = replace(config, warnings=check_servers(config, source))
        return AgentsText(config, data.decode("utf-8"), _digest(data))

    async def set(self, agent_id: str, entry: JsonObject) -> AgentsText:
        """Add a server to an agent (or to ``defaults``), or replace its own of that name."""
        return await self.edit(lambda now: set_entry(_having(now, agent_id), agent_id, entry))

    async def drop(self, agent_id: str, name: str) -> AgentsText:
        """Take a server of an agent's own (or of ``defaults``) away."""
        return await self.edit(lambda now: drop_entry(_having(now, agent_id), agent_id, name))

    async def edit(self, edit: Edit) -> AgentsText:
        """Change the file as it is now; raise InvalidRecord, and write nothing, if it is wrong."""
        until = self._clock.monotonic() + LOCK_SECONDS
        while True:
            made = await asyncio.to_thread(self._edit_once, edit)
            if made is not None:
                return made
            if self._clock.monotonic() >= until:
                raise FileBusy(f"{self.path}: somebody else is writing it")
            await self._clock.sleep(_LOCK_PAUSE)

    def _edit_once(self, edit: Edit) -> AgentsText | None:
        """Edit under the lock; return None when somebody else has it."""
        try:
            with self._locked() as folder:
                return self._replaced(edit, folder)
        except BlockingIOError:
            return None
        except OSError as error:
            raise NotWritten(f"{self.path}: cannot be written: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Generator[int]:
        """Hold the lock on the file's folder; raise BlockingIOError when somebody else does."""
        folder = os.open(self._real().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        finally:
            os.close(folder)

    def _replaced(self, edit: Edit, folder: int) -> AgentsText:
        now = self.read()
        made = self.parse(edit(now).encode("utf-8"))
        if made.digest != now.digest:
            self._write(made.text)
            os.fsync(folder)
        return made

    def _write(self, text: str) -> None:
        """Put a new file in the place of the old one, with its mode."""
        target = self._real()
        mode = target.stat().st_mode & 0o7777
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                os.fchmod(stream.fileno(), mode)
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(target)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(name).unlink()
            raise

    def _real(self) -> Path:
        """Return the file itself: a link to it stays a link."""
        return self.path.resolve()

    def _bytes(self) -> bytes:
        try:
            with self.path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        except OSError as error:
            reason = error.strerror or "unreadable"
            raise InvalidRecord([f"cannot be read: {reason}"], source=str(self.path)) from error
        if len(data) > MAX_BYTES:
            raise InvalidRecord([f"is over {MAX_BYTES} bytes"], source=str(self.path))
        return data


def refuse_unknown(agent_id: str, known: Collection[str]) -> None:
    """Raise UnknownAgent unless there is an agent of this id."""
    if agent_id not in known:
        names = ", ".join(name for name in known if name != DEFAULTS) or "none"
        raise UnknownAgent(f"there is no agent {agent_id!r} (known: {names})")


def _having(now: AgentsText, agent_id: str) -> str:
    refuse_unknown(agent_id, (*now.config.ids, DEFAULTS))
    return now.text


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
