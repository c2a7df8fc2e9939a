"""What a process that runs one guest is told, and what it says: one object in, a line for each out.

The first line is ``ready`` or ``refused``; then come the events of the stream, ``exit`` at the end.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

from bascule.doors.hostcalls.host import GuestLimits
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.model.session import SessionRequest

Said = Literal["ready", "refused", "log", "stdout", "stderr", "exit"]


class GuestOrder(Struct, frozen=True, kw_only=True):
    """A module to run, with whose token, within which limits. ``path`` has no links in it."""

    token: str
    task: str
    path: str
    checksum: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    limits: GuestLimits = GuestLimits()
    model: str | None = None
    person: str | None = None
    #: Whose token it is, for the log.
    caller: str = ""
    token_id: str = ""
    #: What narrows its sessions, beside the task.
    requests: tuple[SessionRequest, ...] = ()

    def __repr__(self) -> str:  # a token is in no traceback
        return f"GuestOrder(task={self.task!r}, path={self.path!r})"


class KeptModules(Struct, frozen=True):
    """Where the node keeps compiled modules, and the key that says which are its own."""

    folder: str
    key: bytes

    def __repr__(self) -> str:  # nor is a key
        return f"KeptModules(folder={self.folder!r})"


class SentOrder(Struct, frozen=True):
    """The order as it is sent, with the node's address and its budgets of conversations."""

    url: str
    order: GuestOrder
    settings: LoopSettings = DEFAULT_SETTINGS
    modules: KeptModules | None = None


class Line(Struct, frozen=True):
    """One line of the process; ``data`` is passed on as it is."""

    event: Said
    data: Raw


class Ready(Struct, frozen=True):
    """The module is compiled: the digest is of those bytes."""

    sha256: str


class NotRun(Struct, frozen=True):
    """The module is not run; ``code`` is one of the table of codes."""

    code: str
    message: str
