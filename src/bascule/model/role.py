"""The roles a token may have; ``bascule.auth.identity`` says what each may do."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Role = Literal["admin", "operator", "approver", "viewer", "node", "client"]
ROLES: tuple[Role, ...] = get_args(Role)
#: A link has no role of its own: it may do nothing but be exchanged.
TokenRole: TypeAlias = Role | Literal["link"]
#: What a link is exchanged for: a page's token of a role, or a confirmation of what a page asks.
Grant: TypeAlias = Role | Literal["confirm"]
