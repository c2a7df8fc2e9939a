"""The agents of a file, with servers of their own, beside a control plane in the same process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.app.data_dir import HOMES_FOLDER
from bascule.app.logs import hide
from bascule.app.settings import Settings
from bascule.app.stored_records import with_servers
from bascule.app.stores import Stores
from bascule.node.assembly import BridgeOptions

if TYPE_CHECKING:
    from bascule.manager.fleet import AgentFleet


def bridge_options(settings: Settings, stores: Stores) -> BridgeOptions:
    """Return what a bridge of this process is opened with."""
    return {
        "rules": settings.rules(),
        "environment": settings.environment,
        "settings": settings.node.limits(),
        "ledger": stores.ledger,
        "homes": Path(settings.data_dir) / HOMES_FOLDER,
        "secrets": stores.secrets,
        "approver": stores.approvals,
    }


@asynccontextmanager
async def open_agents(
    settings: Settings, stores: Stores
) -> AsyncGenerator[AgentFleet | None, None]:
    """Connect the servers of the agents, if there is a file of them; secrets know their users."""
    if settings.agents is None:
        yield None
        return
    from bascule.manager.fleet import AgentFleet  # noqa: PLC0415 - few processes have agents

    fleet, service, secrets = (
        AgentFleet(settings.agents, **bridge_options(settings, stores)),
        stores.service,
        stores.secrets,
    )
    hide(lambda: fleet.reference_values)
    async with AsyncExitStack() as stack:
        if secrets is not None:
            secrets.records = lambda: with_servers(service.snapshot(), fleet.secret_users())
        await stack.enter_async_context(fleet)
        if secrets is not None:
            stack.callback(secrets.subscribe(fleet.renew_secret))
        yield fleet
