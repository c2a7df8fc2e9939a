"""What a section may be asked to keep its servers from.

A process that is started here always gets an environment built from empty, a private HOME and a
private TMPDIR. What is asked for besides becomes the ``sandbox`` of its record, and is required: a
policy that nobody enforces is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass

from bascule.model.json import JsonValue
from bascule.section.errors import McpConfigError


@dataclass(slots=True, frozen=True)
class NetworkPolicy:
    """Which hosts a server's process may reach: names, with ``:port`` unless that is 443."""

    allowed_domains: tuple[str, ...] = ()

    @classmethod
    def with_domains(cls, *domains: str) -> NetworkPolicy:
        """Allow these domains and no others."""
        return cls(domains)

    @classmethod
    def no_network(cls) -> NetworkPolicy:
        """Allow none."""
        return cls()


@dataclass(slots=True, frozen=True)
class SandboxConfig:
    """Whether a server's process runs in a sandbox: the best that there is, and not without."""

    enabled: bool = True


@dataclass(slots=True, frozen=True)
class IsolationConfig:
    """How a server's process is kept apart; without anything set it has a HOME of its own."""

    network_policy: NetworkPolicy | None = None
    sandbox: SandboxConfig | None = None

    def sandbox_of_record(self) -> dict[str, JsonValue] | None:
        """Return what a server's record says for it; None where nothing was asked for.

        What is asked for is required: a server that cannot be kept so is not started. Raise
        McpConfigError where the two contradict each other.
        """
        enabled = self.sandbox is not None and self.sandbox.enabled
        if self.network_policy is None:
            return {"level": "best", "required": True} if enabled else None
        if self.sandbox is not None and not enabled:
            raise McpConfigError(
                "isolation.network_policy needs a sandbox, and isolation.sandbox.enabled is False; "
                "leave one of them out"
            )
        hosts = list(self.network_policy.allowed_domains)
        network = {"network": "egress", "hosts": hosts} if hosts else {"network": "none"}
        return {"level": "best", "required": True, **network}
