"""What a section may be asked to keep its servers from.

A process that is started here always gets an environment built from empty, a private HOME and a
private TMPDIR. There is no sandbox yet that could keep it from the network or from files, so what
needs one is refused: a policy that nobody enforces is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass

from bascule.section.errors import McpConfigError


@dataclass(slots=True, frozen=True)
class NetworkPolicy:
    """Which hosts a server's process may reach."""

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
    """Whether a server's process runs in a sandbox."""

    enabled: bool = True


@dataclass(slots=True, frozen=True)
class IsolationConfig:
    """How a server's process is kept apart; without anything set it has a HOME of its own."""

    network_policy: NetworkPolicy | None = None
    sandbox: SandboxConfig | None = None

    def refuse_unsupported(self) -> None:
        """Raise for what nothing here can enforce."""
        if self.network_policy is not None:
            raise McpConfigError(
                "isolation.network_policy cannot be enforced: there is no sandbox yet that limits "
                "the network of a server's process; leave it out, or run the servers behind a "
                "firewall of your own and pass bridge="
            )
        if self.sandbox is not None and self.sandbox.enabled:
            raise McpConfigError(
                "isolation.sandbox.enabled cannot be honoured: there is no sandbox yet; a server "
                "gets an environment built from empty and a private HOME and TMPDIR, no more"
            )
