"""The doors of a node: where callers of tools and models come in, all over one bridge.

``bascule up`` and ``bascule node serve`` open the same ones.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bascule.app.guest_processes import GuestProcesses
from bascule.app.logs import hide
from bascule.app.settings import Settings
from bascule.asgi.cors import shared_routes
from bascule.asgi.guard import GuardedRoute
from bascule.audit.parked_turns import ParkedTurns
from bascule.auth.keys import KeyLabel
from bascule.demo.rehearsal import REHEARSAL, Rehearsal
from bascule.doors.chat.api import ChatParts, chat_routes
from bascule.doors.gateway.api import gateway_routes
from bascule.doors.gateway.gateway import Gateway
from bascule.doors.hostcalls.api import GuestRules, guest_routes
from bascule.doors.hostcalls.module_cache import MODULES_FOLDER
from bascule.doors.hostcalls.orders import KeptModules
from bascule.doors.questions import Questions
from bascule.doors.sessions import Sessions, TokenList
from bascule.doors.tools.api import tools_routes
from bascule.loop.backends import Backends
from bascule.loop.budgets import DEFAULT_SETTINGS, LoopSettings
from bascule.model.snapshot import Snapshot
from bascule.node.assembly import Bridge
from bascule.outbound.references import SecretSource
from bascule.outbound.rules import NodeRules

#: What an admin page of another origin may send; a token, and never a cookie.
_ADMIN_HEADERS = ("Authorization", "Content-Type", "Accept", "X-Bascule-*")


@dataclass(frozen=True, kw_only=True)
class Doors:
    """What the routes of the doors speak to."""

    bridge: Bridge
    sessions: Sessions
    backends: Backends
    guests: GuestProcesses
    guest_rules: GuestRules
    loop: LoopSettings = DEFAULT_SETTINGS
    #: Whose pages may use the gateway, and those of admins who try tools and models.
    origins: tuple[str, ...] = ()
    admin_origins: tuple[str, ...] = ()

    def routes(
        self,
        key_for: Callable[[KeyLabel], bytes],
        *,
        approvals: Questions | None = None,
        parked: ParkedTurns | None = None,
        serves: Sequence[str] = (),
    ) -> list[GuardedRoute]:
        """Return the routes of all doors; ``approvals`` and ``parked`` are where calls wait."""
        metrics = self.bridge.metrics
        metrics.gateway = gateway = Gateway(self.sessions, key_for)
        chat = ChatParts(settings=self.loop, metrics=metrics, parked=parked, questions=approvals)
        tried = [
            *tools_routes(self.sessions, approvals, serves=serves),
            *chat_routes(self.sessions, self.backends, chat),
        ]
        return [
            *shared_routes(tried, _ADMIN_HEADERS, origins=self.admin_origins),
            *guest_routes(self.sessions, self.guests, self.guest_rules),
            *gateway_routes(gateway, self.origins),
        ]


@dataclass(frozen=True, kw_only=True)
class Means:
    """What the doors of a node work with."""

    rules: NodeRules
    secrets: SecretSource | None
    #: Says which compiled modules are the node's own.
    module_key: bytes
    #: Those that backends are of.
    records: Callable[[], Snapshot]


@asynccontextmanager
async def open_doors(
    settings: Settings, bridge: Bridge, tokens: TokenList, means: Means
) -> AsyncGenerator[Doors, None]:
    """Open a bridge and what its doors need; what is opened last is closed first."""
    hide(lambda: bridge.caller.reference_values)
    loop = settings.chat.loop()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bridge)
        sessions = await stack.enter_async_context(Sessions(bridge, tokens))
        backends = Backends(
            means.records,
            rules=means.rules,
            built_in={REHEARSAL: Rehearsal()},
            secrets=means.secrets,
        )
        hide(lambda: backends.known_values)
        stack.push_async_callback(backends.close)
        guests = GuestProcesses(bridge.ledger, _modules(settings, means.module_key), loop)
        yield Doors(
            bridge=bridge,
            sessions=sessions,
            backends=backends,
            guests=await stack.enter_async_context(guests),
            guest_rules=_guest_rules(settings, means.rules),
            loop=loop,
            origins=settings.gateway.origins,
            admin_origins=settings.node.admin_origins,
        )


def _modules(settings: Settings, key: bytes) -> KeptModules:
    return KeptModules(str(Path(settings.data_dir).resolve() / MODULES_FOLDER), key)


def _guest_rules(settings: Settings, rules: NodeRules) -> GuestRules:
    node = settings.node
    return GuestRules(
        lists=rules,
        most=node.max_guests,
        seconds=node.guest_seconds,
        memory_bytes=node.guest_memory_mb * 1024 * 1024,
    )
