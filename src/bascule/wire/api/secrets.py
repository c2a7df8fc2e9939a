"""Secrets: what is set and bound, and what is shown of them, which is never a value."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

#: ``changed``: its record is not what it was when it was bound. ``missing``: it is gone.
BindingState = Literal["bound", "changed", "missing"]
UserKind = Literal["server", "backend"]
_Id = Annotated[str, Meta(min_length=1, max_length=128)]


class SecretUser(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server or a backend, by its id: one of both is given."""

    server: _Id | None = None
    backend: _Id | None = None


class NewSecret(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value for a secret, and who may be given it besides those who may already."""

    value: str
    bind: tuple[SecretUser, ...] = ()

    def __repr__(self) -> str:
        return f"NewSecret(value=***, bind={self.bind!r})"


class BindingShown(Struct, frozen=True, kw_only=True):
    """Who may be given a secret, by whose word, and whether that still holds."""

    kind: UserKind
    id: str
    state: BindingState
    bound_at: str | None
    bound_by: str


class SecretUserShown(Struct, frozen=True, kw_only=True):
    """A record that refers to a secret."""

    kind: UserKind
    id: str


class SecretShown(Struct, frozen=True, kw_only=True):
    """What is shown of a secret."""

    name: str
    version: int
    created_at: str | None
    changed_at: str | None
    changed_by: str
    bound: tuple[BindingShown, ...]
    used_by: tuple[SecretUserShown, ...]


class SecretList(Struct, frozen=True):
    """What is shown of all secrets, by name."""

    secrets: tuple[SecretShown, ...]


class SecretRemoved(Struct, frozen=True):
    """The name of a secret that was removed."""

    deleted: str
