"""The roles a token may have; ``bascule.auth.identity`` says what each may do."""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["admin", "operator", "approver", "viewer", "node", "client"]
ROLES: tuple[Role, ...] = get_args(Role)
