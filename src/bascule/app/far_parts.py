"""What a node has of its control plane in words alone: secrets are not handed out.

Whatever needs one of them fails, and says why.
"""

from __future__ import annotations

from typing import NoReturn

from bascule.errors import ServerUnavailable
from bascule.model.secret_use import SecretUse


class FarSecrets:
    """Resolves no secret."""

    async def secret(self, name: str, use: SecretUse) -> NoReturn:
        """Say where it is."""
        del use
        raise ServerUnavailable(
            f"the secret {name!r} is at the control plane, which a node of its own process cannot "
            "ask for it yet; refer to a variable or a file of the node that records may read "
            "(--allow-variable, --allow-file)",
            reason="env_missing",
        )
