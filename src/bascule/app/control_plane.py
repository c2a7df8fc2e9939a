"""The control plane: the registry and what is kept with it, as its API and the admin page need it.

``bascule up`` joins a node to it; ``bascule registry serve`` serves it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bascule.app.backends import backends_trouble
from bascule.app.instance import asked_by_owner, instance_routes
from bascule.app.logs import hide
from bascule.app.serving import Orders, Work
from bascule.app.settings import Settings
from bascule.app.stores import Stores
from bascule.asgi.guard import LOOPBACK_HOSTS, GuardedApp, GuardedRoute, GuardRules
from bascule.asgi.reference import reference_routes
from bascule.audit.events import AccessRefused
from bascule.audit.figures import WINDOW_SECONDS, RecentFigures
from bascule.audit.log_lines import say_approval, say_refused
from bascule.audit.metrics import Metrics
from bascule.audit.sent_calls import SentCalls
from bascule.audit.trail import LedgerTrail
from bascule.auth.links import Links
from bascule.clock import SYSTEM_CLOCK
from bascule.control.api.approvals import approval_routes
from bascule.control.api.attention import Watched
from bascule.control.api.audit import audit_routes
from bascule.control.api.live import Live
from bascule.control.api.login import login_routes
from bascule.control.api.node_port import NodeFace
from bascule.control.api.overview import overview_routes
from bascule.control.api.rest import registry_routes
from bascule.control.api.secrets import secret_routes
from bascule.control.api.tokens import token_routes
from bascule.control.approval_hook import ApprovalHook, open_hook
from bascule.control.web.page import page_routes
from bascule.control.work.far_nodes import FarNodes
from bascule.doors.health import health_routes
from bascule.model.backend import BackendRecord
from bascule.policy.compose import admitted
from bascule.wire.api.health import Health

#: What is wrong with the PostgreSQL that replicas share, or between them, and not with one alone.
_SHARED_TROUBLES = frozenset(
    {"registry_unwritable", "ledger_behind", "files_differ", "backends_differ"}
)


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """What the routes of a control plane speak to."""

    stores: Stores
    data: Path
    links: Links
    metrics: Metrics
    figures: RecentFigures
    live: Live
    #: Calls that nodes of other processes tell of.
    sent: SentCalls
    #: Of the node, if there is one, by which profiles narrow its sessions.
    environment: str | None = None
    hook: ApprovalHook | None = None
    #: Of the settings.
    backends: Sequence[BackendRecord] = ()
    node_url: str | None = None

    def turned_away(self, event: AccessRefused) -> None:
        """Count and say that a request got no further than the guard."""
        self.metrics.turned_away(event.code)
        say_refused(event)

    def troubles(self) -> dict[str, str]:
        """Say what cannot be written now, or does not count, by code."""
        registry, kept = self.stores.service.refusal, self.stores.kept
        found: dict[str, str | None] = {
            "registry_unwritable": registry and f"the registry cannot be written to: {registry}",
            "ledger_unwritable": kept and kept.trouble,
            "ledger_behind": kept and kept.degraded,
            "files_differ": self.stores.files.trouble,
            "backends_differ": self._backends_trouble(),
        }
        if found["ledger_unwritable"] is not None:
            del found["ledger_behind"]  # it says so already
        return {code: words for code, words in found.items() if words is not None}

    def _backends_trouble(self) -> str | None:
        if self.stores.shared is None:
            return None
        return backends_trouble(self.stores.service.view, self.backends, self.stores.node)

    def unready(self) -> str | None:
        """Say why somebody else should be asked, if so.

        A PostgreSQL that is away is away for all who share it: they serve on without it. Files that
        do not count are no reason: those of another replica do.
        """
        borne = frozenset[str]() if self.stores.shared is None else _SHARED_TROUBLES
        found = (words for code, words in self.troubles().items() if code not in borne)
        return "; ".join(found) or None


@contextmanager
def open_plane(
    settings: Settings,
    stores: Stores,
    metrics: Metrics,
    *,
    running: Callable[[], int | None] = lambda: None,
) -> Generator[ControlPlane]:
    """Join the parts of a control plane; ``running`` says how many calls its node has under way."""
    service, tokens, approvals = stores.service, stores.tokens, stores.approvals
    if stores.secrets is not None:
        secrets = stores.secrets
        hide(lambda: secrets.known_values)
    metrics.ledger, metrics.count_nodes = stores.kept, service.standing.states
    tokens.standing = lambda person: admitted(service.snapshot(), None, person)
    sent = SentCalls(fresh_seconds=WINDOW_SECONDS)
    figures = RecentFigures(metrics, sent.metrics, clock=SYSTEM_CLOCK, running=running)
    live = Live(
        service,
        figures,
        clock=SYSTEM_CLOCK,
        approvals=approvals,
        ledger=stores.ledger,
        sent=sent,
    )
    with ExitStack() as stack:
        if approvals is not None:
            stack.callback(approvals.subscribe(lambda one: metrics.approval_moved(one.state)))
            stack.callback(approvals.subscribe(say_approval))
        yield ControlPlane(
            stores=stores,
            data=Path(settings.data_dir),
            links=Links(tokens),
            metrics=metrics,
            figures=figures,
            live=live,
            sent=sent,
            environment=settings.environment,
            backends=settings.backends,
            node_url=settings.server.node_url,
            hook=open_hook(approvals, settings.rules(), Path(settings.data_dir)),
        )


def guarded(settings: Settings, plane: ControlPlane, routes: Sequence[GuardedRoute]) -> GuardedApp:
    """Return routes behind the guard."""
    return GuardedApp(
        routes,
        plane.stores.tokens,
        GuardRules(hosts=(*LOOPBACK_HOSTS, *settings.server.names)),
        on_refused=plane.turned_away,
        confirms=plane.links.confirms if settings.server.beyond_loopback else None,
    )


def plane_works(plane: ControlPlane, orders: Orders) -> list[Work]:
    """Return what goes on for as long as a control plane serves."""
    stores = plane.stores
    return [
        plane.figures.run(),
        plane.live.run(),
        stores.files.on_order(orders.reload),
        stores.files.on_change(SYSTEM_CLOCK),
        stores.files.now_and_then(SYSTEM_CLOCK),
        *([] if stores.approvals is None else [stores.approvals.run()]),
        *([] if plane.hook is None else [plane.hook.run()]),
        *([] if stores.parked is None else [stores.parked.run()]),
        *([] if stores.secrets is None else [stores.secrets.follow(SYSTEM_CLOCK)]),
    ]


def plane_routes(
    plane: ControlPlane,
    *,
    node: NodeFace | None = None,
    versions: Mapping[str, str] | None = None,
) -> list[GuardedRoute]:
    """Return the routes of a control plane; ``node`` is that of its own process, if it has one.

    Others answer what only a node can as well, or in its place.
    """
    stores, clock = plane.stores, SYSTEM_CLOCK
    service, tokens, kept = stores.service, stores.tokens, stores.kept
    far = None if stores.works is None else FarNodes(service, stores.works)
    if node is None and far is not None:
        service.known_tools = far.tools.known
    return [
        *registry_routes(
            service,
            clock=clock,
            node=node,
            far=far,
            environment=plane.environment,
        ),
        *stores.files.routes(),
        *token_routes(tokens, service),
        *login_routes(tokens, plane.links),
        *page_routes(node_url=plane.node_url),
        *([] if stores.secrets is None else secret_routes(stores.secrets)),
        *_approval_routes(stores),
        *audit_routes(None if kept is None else LedgerTrail(kept), clock=clock),
        *overview_routes(_watched(stores), plane.figures, clock=clock, versions=versions),
        *plane.live.routes(),
    ]


def process_routes(plane: ControlPlane, health: Callable[[], Health]) -> list[GuardedRoute]:
    """Return the routes that are about the process itself, whatever it serves."""
    return [
        *instance_routes(plane.data),
        *health_routes(health, plane.metrics, plane.unready, asked_by_owner(plane.data)),
        *reference_routes(),
    ]


def _approval_routes(stores: Stores) -> list[GuardedRoute]:
    if stores.approvals is None:
        return []

    def people() -> int:
        return len(stores.service.snapshot().users)

    return approval_routes(stores.approvals, people=people, clock=SYSTEM_CLOCK)


def _watched(stores: Stores) -> Watched:
    return Watched(
        service=stores.service,
        tokens=stores.tokens,
        approvals=stores.approvals,
        ledger=stores.kept,
        problems=lambda: stores.files.problems,
    )


def served_parts(stores: Stores, **others: object) -> list[str]:
    """Return the names of those parts that a process may be without and this one has."""
    optional = {**others, "approvals": stores.approvals, "secrets": stores.secrets}
    return [name for name, part in optional.items() if part is not None]
