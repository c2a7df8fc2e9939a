"""Under which names nodes call: those of the control plane's own are for these alone."""

from __future__ import annotations

from bascule.control.api.nodes import refuse_own
from bascule.control.registry.service import RegistryService
from bascule.control.rpc.calls import Call


def refuse_other(service: RegistryService, call: Call) -> None:
    """Refuse whoever calls under the name of a node of the control plane's own, and is not it."""
    if not call.own:
        refuse_own(service, call.principal.name)
