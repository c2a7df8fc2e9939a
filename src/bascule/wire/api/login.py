"""How the admin page gets its token: a code of a link, exchanged once."""

from __future__ import annotations

from msgspec import Struct

from bascule.model.role import Role


class Login(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A code to exchange; with ``look``, only what it would give is shown."""

    code: str
    look: bool = False


class LinkShown(Struct, frozen=True, kw_only=True):
    """Whose session a link opens, and who made it."""

    role: Role
    person: str | None
    task_id: str | None
    made_by: str | None
    expires_at: str | None


class LoggedIn(Struct, frozen=True, kw_only=True):
    """The token of a page: ``token`` is in this answer and in no other.

    It ends with the process, at ``expires_at``, or when it was not used for ``idle_seconds``.
    """

    token: str
    token_id: str
    role: Role
    person: str | None
    task_id: str | None
    expires_at: str | None
    idle_seconds: int
