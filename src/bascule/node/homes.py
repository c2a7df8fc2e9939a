"""HOMEs that stay: a folder for each server, launch and sharer, kept from one start to the next.

What a launcher has fetched (uv, npm) is in its HOME, so a second start needs no network, and no
server has another's packages. Bridges on one machine may have the same HOME at the same time: a
shared lock on its ``used`` file, which dies with its owner, keeps it from being removed meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import ServerUnavailable
from bascule.node.trees import remove_tree, size_of_tree

logger = logging.getLogger(__name__)

#: What is Bascule's in the user's cache folder.
OWN_CACHE = "bascule"
FOLDER = "homes"
MAX_MB = 5120
MAX_DAYS = 30
_DAY = 86_400.0
_HOUR = 3_600.0
_MB = 1024 * 1024
_USED = "used"
_SIZE = "size"
_READY = "ready"
_PINS = ".pins.json"
_TRIES = 100
_GONE = ".gone-"
_KEY_LENGTH = 16
#: Users that own nothing on any machine, above those of systems, containers and directories: as
#: root, a confined server is one of them, and its HOME belongs to it.
SERVER_USERS = range(1_900_000_000, 2_100_000_000)
_OPEN_LOCK = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class KeptHome(Struct, frozen=True, kw_only=True):
    """A HOME as it lies on the disk."""

    server_id: str
    folder: Path
    bytes: int
    used_at: float
    in_use: bool


class Home:
    """A HOME in use. Made by ``Homes.take``; whoever took it leaves it."""

    def __init__(self, folder: Path, lock: int, clock: Clock) -> None:
        self._folder = folder
        self._lock: int | None = lock
        self._clock = clock
        #: What the server is given.
        self.path = folder / "home"

    def came_up(self) -> None:
        """Note that the server came up with what is here now."""
        self._believe_from(self._clock.now())

    def forget(self) -> None:
        """Note that what is here may not be enough: the network is asked first."""
        if self._came_up_at is not None:
            self._believe_from(0.0)

    def postpone(self) -> bool:
        """Believe in what is here for an hour, as nothing newer can be had; say if anything is."""
        if self._came_up_at is None:
            return False
        self._believe_from(self._clock.now() - _DAY + _HOUR)
        return True

    @property
    def complete(self) -> bool:
        """Say whether the server came up with what is here, not too long ago to be believed."""
        at = self._came_up_at
        return at is not None and self._clock.now() - at < _DAY

    @property
    def _came_up_at(self) -> float | None:
        try:
            return (self._folder / _READY).lstat().st_mtime
        except OSError:
            return None

    def _believe_from(self, at: float) -> None:
        with contextlib.suppress(OSError):
            note = self._folder / _READY
            note.unlink(missing_ok=True)  # never through a link that a server put there
            note.touch(0o600, exist_ok=False)
            os.utime(note, (at, at))

    def leave(self) -> None:
        """Give the HOME back; one in which nothing was left goes. Any number of times."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            with contextlib.suppress(OSError):
                _date(lock, self._clock.now())
                if _alone(lock) and not any(self.path.iterdir()):
                    _discard(self._folder)
        finally:
            os.close(lock)


class Homes:
    """The kept HOMEs of one place. ``base`` is somebody's choice; ``names`` below it are ours."""

    def __init__(
        self,
        base: Path,
        names: Sequence[str] = (FOLDER,),
        *,
        max_mb: int = MAX_MB,
        max_days: int = MAX_DAYS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._base = base
        self._names = tuple(names)
        self._max_bytes = max_mb * _MB
        self._max_seconds = max_days * _DAY
        self._clock = clock
        self.root = base.joinpath(*names)

    def take(self, server_id: str, argv: Sequence[str], sharer: str = "") -> Home | None:
        """Return the HOME of a server that is started so for those; None where none can be kept.

        Raises ServerUnavailable when what stands there is a link or somebody else's: a path that
        can be guessed must not lead elsewhere.
        """
        try:
            self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._taken((*self._names, server_id, launch_key(argv, sharer)))
        except OSError as fault:
            logger.warning("no HOME is kept below %s: %s", self.root, fault.strerror)
            return None

    def pin_file(self, server_id: str, words: Sequence[str]) -> Path | None:
        """Return where it is kept what a server fetched by those words; None where nothing can be.

        It lies beside the server's HOMEs, in a folder that is private as theirs are.
        """
        try:
            self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _entered(self._base, (*self._names, server_id)):
                return self.root / server_id / f"{launch_key(words)}{_PINS}"
        except OSError:
            return None

    def pin_files(self, server_id: str | None = None) -> list[Path]:
        """Return all that is kept of what servers fetched, or one of them."""
        folders = [folder for folder in _subfolders(self.root) if server_id in (None, folder.name)]
        return sorted(file for folder in folders for file in folder.glob(f"*{_PINS}"))

    def _taken(self, names: Sequence[str]) -> Home:
        """Take a HOME; one that is removed at that very moment is made once more."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError), _entered(self._base, names) as entered:
                lock = os.open(_USED, _OPEN_LOCK | os.O_CREAT, 0o600, dir_fd=entered)
                try:
                    home = self._locked(entered, lock, self._base.joinpath(*names))
                except BaseException:
                    os.close(lock)
                    raise
                if home is not None:
                    return home
                os.close(lock)
        raise FileNotFoundError(errno.ENOENT, "it is removed again and again")

    def _locked(self, entered: int, lock: int, folder: Path) -> Home | None:
        fcntl.flock(lock, fcntl.LOCK_SH)  # held against us for one rename at most
        if not _is_at(lock, folder / _USED):
            return None
        _date(lock, self._clock.now())
        os.close(_enter(entered, "home", folder / "home", users=SERVER_USERS))
        return Home(folder, lock, self._clock)

    def found(self) -> list[KeptHome]:
        """Return every HOME that is kept here, the one unused for longest first."""
        homes = [_looked_at(folder) for folder in self._folders()]
        return sorted((home for home in homes if home is not None), key=lambda home: home.used_at)

    def remove(self, home: KeptHome) -> bool:
        """Remove a HOME unless it is in use; say whether it is gone."""
        try:
            lock = os.open(home.folder / _USED, _OPEN_LOCK | os.O_CREAT, 0o600)
        except OSError:
            return not home.folder.exists()
        try:
            return _alone(lock) and _discard(home.folder)
        finally:
            os.close(lock)

    def sweep(self, stop: Callable[[], bool] = lambda: False) -> list[KeptHome]:
        """Remove what is older or, all together, larger than allowed; return what is gone."""
        self._finish_removals()
        oldest = self._clock.now() - self._max_seconds
        gone: list[KeptHome] = []
        homes = [] if stop() else self.found()
        total = sum(home.bytes for home in homes)
        for home in homes:
            if stop() or (home.used_at >= oldest and total <= self._max_bytes):
                break
            if self.remove(home):
                total -= home.bytes
                gone.append(home)
        return gone

    def _folders(self) -> Iterator[Path]:
        """Return the folders of all HOMEs; a link is none."""
        for server in _subfolders(self.root):
            yield from (folder for folder in _subfolders(server) if folder.name[0] != ".")

    def _finish_removals(self) -> None:
        """Remove what a process that was killed had begun to remove."""
        for server in _subfolders(self.root):
            for folder in _subfolders(server):
                if folder.name.startswith(_GONE):
                    remove_tree(folder)


def user_homes(
    environ: Mapping[str, str],
    *,
    max_mb: int = MAX_MB,
    max_days: int = MAX_DAYS,
    clock: Clock = SYSTEM_CLOCK,
) -> Homes | None:
    """Return the HOMEs in the user's cache folder; None for a user who has none."""
    cache = user_cache(environ)
    if cache is None:
        return None
    return Homes(cache, (OWN_CACHE, FOLDER), max_mb=max_mb, max_days=max_days, clock=clock)


def user_cache(environ: Mapping[str, str]) -> Path | None:
    """Return the user's cache folder; None for a user who has none."""
    cache = environ.get("XDG_CACHE_HOME", "")
    if cache.startswith("/"):  # a relative one is to be ignored, says the specification
        return Path(cache)
    home = environ.get("HOME", "")
    return Path(home) / ".cache" if home.startswith("/") else None


def launch_key(argv: Sequence[str], sharer: str = "") -> str:
    """Return what tells one way to start a server from another, and for whom."""
    text = json.dumps([list(argv), sharer] if sharer else list(argv)).encode()
    return hashlib.sha256(text).hexdigest()[:_KEY_LENGTH]


@contextlib.contextmanager
def _entered(base: Path, names: Sequence[str]) -> Generator[int]:
    """Go down from a folder by names, making what is missing, and never along a link."""
    current = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    path = base
    try:
        _refuse_open_to_all(current, base)
        for name in names:
            path /= name
            below = _enter(current, name, path)
            os.close(current)
            current = below
        yield current
    finally:
        os.close(current)


def _enter(parent: int, name: str, path: Path, users: range = range(0)) -> int:
    """Open a folder of our own, made now if it is missing; as root, it may be one of the users'."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    try:
        folder = os.open(name, _OPEN_FOLDER, dir_fd=parent)
    except OSError as fault:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            raise
        raise _refused(path, "is no folder of ours") from fault
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() and not (os.geteuid() == 0 and found.st_uid in users):
        os.close(folder)
        raise _refused(path, "belongs to somebody else")
    if stat.S_IMODE(found.st_mode) & 0o077:
        os.fchmod(folder, 0o700)
    return folder


def _refuse_open_to_all(folder: int, path: Path) -> None:
    """Refuse a place in which anybody may put something else in the place of what is ours."""
    mode = os.fstat(folder).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise _refused(path, "may be written to by everybody")


def _refused(path: Path, problem: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"no HOME is kept below {str(path)!r}, which {problem}: remove it, or say "
        'home = "temporary" in [stdio]',
        reason="launch_denied",
    )


def _alone(lock: int) -> bool:
    """Say whether nobody else has the lock; if so it is ours alone."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _discard(folder: Path) -> bool:
    """Put a HOME out of the way at once, then remove it; its lock is ours."""
    gone = folder.with_name(f"{_GONE}{secrets.token_hex(8)}")
    try:
        folder.rename(gone)
    except OSError:
        return False
    remove_tree(gone)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # the last of its server
    return True


def _date(lock: int, now: float) -> None:
    """Note when a HOME was used last."""
    os.utime(lock, (now, now))


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _looked_at(folder: Path) -> KeptHome | None:
    """Return what is known of a HOME; None when it went meanwhile."""
    try:
        used_at = (folder / _USED).lstat().st_mtime
        lock = os.open(folder / _USED, _OPEN_LOCK)
    except OSError:
        return None  # it is being made, or removed
    in_use = not _alone(lock)
    os.close(lock)
    return KeptHome(
        server_id=folder.parent.name,
        folder=folder,
        bytes=_size(folder, used_at, in_use=in_use),
        used_at=used_at,
        in_use=in_use,
    )


def _size(folder: Path, used_at: float, *, in_use: bool) -> int:
    """Return how large a HOME is; it is measured again only when it was used since."""
    note = folder / _SIZE
    with contextlib.suppress(OSError, ValueError):
        if not in_use and note.lstat().st_mtime == used_at:
            return int(note.read_text(encoding="ascii"))
    size = size_of_tree(folder / "home")
    with contextlib.suppress(OSError):
        note.unlink(missing_ok=True)  # never through a link that a server put there
        note.write_text(f"{size}\n", encoding="ascii")
        os.utime(note, (used_at, used_at))
    return size
