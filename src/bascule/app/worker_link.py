"""What a process and its workers say to each other: lines of JSON on a worker's standard streams.

Standard input begins with the order, then says how all workers stand, and when to end; its own end
is the word to end at once. On standard output a worker says that it serves, or why it does not, and
answers whoever asks whether it lives.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from bascule.app.settings import LoadedSettings
from bascule.model.worker import WorkerStanding
from bascule.wire.api.nodes import NodeStanding

MAX_LINE_BYTES = 4 * 1024 * 1024


class SentNode(Struct, frozen=True, kw_only=True):
    """Which control plane a worker follows, and as whom (``NodeOrder``)."""

    registry: str
    token: str
    name: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    #: Files that no record may read, whatever the rules say.
    private: tuple[str, ...] = ()
    wait_seconds: float = 30.0


class WorkerOrder(Struct, frozen=True, kw_only=True):
    """All that a worker is told before it starts."""

    number: int
    count: int
    #: With a data directory and the port of its own.
    settings: LoadedSettings
    node: SentNode
    #: The data directory of all, whose owner may ask.
    data: str
    #: Where the sockets are at which requests are handed over, and what whoever does so shows.
    sockets: str
    key: bytes
    #: Whether whoever started it is the control plane, and answers what is none of a node's.
    has_plane: bool = False


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker hears after its order."""

    crew: tuple[WorkerStanding, ...] | None = None
    stop: bool = False
    hurry: bool = False
    #: Whether it should say that it lives.
    asked: bool = False


class Answered(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says: once that it serves, or why it will not; that it lives, when asked."""

    event: Literal["serving", "refused", "alive"]
    standing: NodeStanding | None = None
    code: str = ""
    message: str = ""


class Crew:
    """The workers of a node, as whoever started them last said."""

    def __init__(self) -> None:
        self.standings: tuple[WorkerStanding, ...] = ()

    def troubles(self) -> dict[str, str]:
        """Say which of them are not there, by code."""
        away = [one for one in self.standings if one.state != "serving"]
        if not away:
            return {}
        said = (f"worker {one.number}: {one.reason or one.state}" for one in away)
        return {"workers_down": f"{len(away)} of {len(self.standings)}: {'; '.join(said)}"}


def line_of(value: Struct) -> bytes:
    """Return something as it is said."""
    return msgspec.json.encode(value) + b"\n"


read_order = msgspec.json.Decoder(WorkerOrder).decode
read_told = msgspec.json.Decoder(Told).decode
read_answered = msgspec.json.Decoder(Answered).decode
