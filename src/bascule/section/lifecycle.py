"""The life of a section's connections: one machine, from disconnected and back.

    disconnected ──connect()──> connecting ──> connected <──> reconnecting
         ^                          │              │               │
         └── failure ───────────────┴─ disconnect()┴── retries exhausted

The bridge opens connections and gets lost ones back. All that exists while a section is connected
is one ``Crossing``; to disconnect is to let go of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from msgspec.structs import replace

from bascule.clock import SYSTEM_CLOCK
from bascule.errors import BasculeError, SessionRefused
from bascule.node.blocking import BlockingBridge, BlockingSession
from bascule.node.bridge.opening import Opening
from bascule.node.bridge.toolset import ToolSet
from bascule.section.config import McpServerConfig
from bascule.section.errors import McpConnectionError
from bascule.section.records import CONNECT_SECONDS
from bascule.section.runtime import AnyTool

State = Literal["disconnected", "connecting", "connected", "reconnecting"]

ATTEMPTS = 3
#: Where the pool has given a server up; "disconnected" there is one that is opened on demand.
_LOST = frozenset({"down", "parked", "disabled"})
_ON_ITS_WAY = frozenset({"reconnecting", "connecting"})


@dataclass(slots=True, frozen=True)
class Crossing:
    """A section that is connected: its bridge, its session there, its tools, what it was told."""

    bridge: BlockingBridge
    session: BlockingSession
    tools: tuple[AnyTool, ...]
    warnings: tuple[str, ...]


class Lifecycle:
    """Connects and disconnects the servers of one section, from any thread."""

    def __init__(
        self,
        servers: Sequence[McpServerConfig],
        *,
        opening: Opening,
        make_bridge: Callable[[], BlockingBridge],
        owned: bool,
        translate: Callable[[ToolSet], tuple[AnyTool, ...]],
    ) -> None:
        #: By the bridge's ids. A server none of whose tools may be shown is not even started.
        self._servers = {
            s.server_id: s for s in servers if s.enabled_tools is None or s.enabled_tools
        }
        request = replace(opening.request, server_ids=tuple(self._servers))
        self._opening = replace(opening, request=request)
        self._make_bridge = make_bridge
        self._owned = owned
        self._translate = translate
        self._connecting = threading.Lock()  # held while somebody connects
        self._lock = threading.Lock()  # held for the moment in which something changes
        self._bridge: BlockingBridge | None = None
        self._crossing: Crossing | None = None

    @property
    def state(self) -> State:
        """Return where the section stands, as the bridge's connections stand now."""
        bridge, crossing = self._bridge, self._crossing
        if crossing is None:
            return "disconnected" if bridge is None else "connecting"
        try:
            states = _states(crossing.bridge)
        except RuntimeError:
            return "disconnected"  # the bridge was closed by whoever owns it
        own = {states.get(name, "connected") for name in self._servers}
        if own & _LOST:
            return "disconnected"
        return "reconnecting" if own & _ON_ITS_WAY else "connected"

    def current(self) -> Crossing:
        """Return what there is while connected; raise McpConnectionError when there is nothing."""
        crossing = self._crossing
        if crossing is None:
            raise self._error("the section is not connected: call connect() first")
        return crossing

    def connect(self) -> None:
        """Connect every server, or none; do nothing when that is so already."""
        with self._connecting:
            if self._crossing is not None and self.state != "disconnected":
                return
            self.disconnect()
            with self._lock:
                bridge = self._bridge = self._make_bridge()
            try:
                crossing = self._opened(bridge)
            except BaseException as error:
                self.disconnect()
                if isinstance(error, RuntimeError):
                    raise self._error(f"cannot connect: {error}") from error
                raise
            self._arrive(crossing)

    def disconnect(self) -> None:
        """Close everything. Any number of times, from any thread, also while connecting."""
        with self._lock:
            bridge, crossing = self._bridge, self._crossing
            self._bridge = self._crossing = None
        if crossing is not None:
            _closed(crossing.session)
        if bridge is not None and self._owned:  # one that was given is its owner's to close
            bridge.close()

    def lost(self, server: McpServerConfig) -> bool | None:
        """Say whether the bridge has given a server up; None where it holds no connections."""
        try:
            states = _states(self.current().bridge)
        except (McpConnectionError, RuntimeError):
            return True
        return states.get(server.server_id, "down") in _LOST if states else None

    def give_up(self, server: McpServerConfig, reason: str) -> NoReturn:
        """Disconnect because a server cannot be had back, and say so."""
        self.disconnect()
        raise self._error(f"server {server.name!r} is lost: {reason}", server.server_id)

    def _opened(self, bridge: BlockingBridge) -> Crossing:
        session = self._session(bridge)
        try:
            listed = self._listed(session)
            return Crossing(bridge, session, self._translate(listed), listed.warnings)
        except BaseException:
            _closed(session)
            raise

    def _session(self, bridge: BlockingBridge) -> BlockingSession:
        try:
            return bridge.open_session(self._opening)
        except BasculeError as error:
            server = error.server if isinstance(error, SessionRefused) else None
            raise self._error(str(error), server) from error

    def _listed(self, session: BlockingSession) -> ToolSet:
        """List the tools of all servers; one that cannot be reached is tried again, three times."""
        until = SYSTEM_CLOCK.monotonic() + CONNECT_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            listed = session.tools()
            found = {name: listed.missing(name) for name in self._servers}
            failures = {name: why for name, why in found.items() if why is not None}
            if not failures:
                return listed
            passing = all(failure.reason == "unavailable" for failure in failures.values())
            if attempt == ATTEMPTS or not passing or SYSTEM_CLOCK.monotonic() >= until:
                said = [
                    f"{self._servers[one].name}: {why.message}" for one, why in failures.items()
                ]
                raise self._error("; ".join(said), next(iter(failures)))
        raise AssertionError("the last attempt returns or raises")

    def _arrive(self, crossing: Crossing) -> None:
        with self._lock:
            wanted = self._bridge is crossing.bridge
            if wanted:
                self._crossing = crossing
        if not wanted:
            _closed(crossing.session)
            raise self._error("it was disconnected while it connected")

    def _error(self, message: str, server: str | None = None) -> McpConnectionError:
        config = self._servers.get(server or next(iter(self._servers), ""))
        if config is None:
            return McpConnectionError(message, server_name=server or "")
        return McpConnectionError(message, server_name=config.name, transport=config.transport)


def _states(bridge: BlockingBridge) -> dict[str, str]:
    return {status.server_id: status.state for status in bridge.statuses()}


def _closed(session: BlockingSession) -> None:
    """End a session; one whose bridge is gone has ended already."""
    try:
        session.close()
    except RuntimeError:
        return
