"""What is kept of a token, and the seal that shows whether somebody edited it.

A seal is an HMAC over everything in a row, under a key that is not in the file: whoever can write
to the file alone can end tokens, but can neither make one nor give one another role, task or date.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bascule.auth.identity import Principal
from bascule.auth.key_text import KEY_BYTES
from bascule.auth.keys import derived
from bascule.auth.server_key import fingerprint
from bascule.clock import rfc3339
from bascule.model.role import Grant, TokenRole
from bascule.wire.api.tokens import TokenShown, TokenState

#: How every token begins.
PREFIX = "bsc_"


class TokenRecord(Struct, frozen=True, kw_only=True):
    """What is kept of a token: plain values, and never the token.

    ``person`` is whom it belongs to; one that ``acts_for_users`` belongs to nobody and speaks for
    whom it names. ``tasks`` limit an approver or viewer; None is all. A link ``grants`` something,
    and a page's token ends with its ``process``.
    """

    id: str
    name: str
    role: TokenRole
    task_id: str | None
    person: str | None = None
    created_at: float
    expires_at: float | None
    digest: bytes
    acts_for_users: bool = False
    made_by: str | None = None
    tasks: tuple[str, ...] | None = None
    grants: Grant | None = None
    process: str | None = None
    seal: bytes = b""

    def shown(self, state: TokenState) -> TokenShown:
        """Return what anybody is shown of it."""
        return TokenShown(
            id=self.id,
            name=self.name,
            role=self.role,
            task_id=self.task_id,
            person=self.person,
            acts_for_users=self.acts_for_users is True,
            tasks=self.tasks if isinstance(self.tasks, tuple) else None,
            made_by=self.made_by,
            grants=self.grants,
            page=self.process is not None,
            created_at=_date(self.created_at),
            expires_at=_date(self.expires_at),
            state=state,
        )


def principal_of(record: TokenRecord) -> Principal | None:
    """Return who holds a token; None for a link, which is nobody's."""
    if record.role == "link":
        return None
    return Principal(
        name=record.name,
        role=record.role,
        task_id=record.task_id,
        token_id=record.id,
        person=record.person,
        acts_for_users=record.acts_for_users,
        made_by=record.made_by,
        tasks=record.tasks,
        page=record.process is not None,
    )


def token_digest(key: bytes, token: bytes) -> bytes:
    """Return what is kept of a token, under the key for that."""
    return hmac.digest(key, token, hashlib.sha256)


#: What a seal is over, in this order: every field but the seal itself.
_SEALED = tuple(field for field in TokenRecord.__struct_fields__ if field != "seal")
#: The same in forms 2 and 3 of ``tokens.db``.
FORM_2_FIELDS = _SEALED[: _SEALED.index("digest") + 1]
_FORM_3_FIELDS = _SEALED[: _SEALED.index("tasks") + 1]


class TokenKeys:
    """The keys of tokens, derived from the server's: for their digests, and for their rows."""

    def __init__(self, root: bytes) -> None:
        if len(root) < KEY_BYTES:
            raise ValueError(f"a key of {len(root)} bytes; at least {KEY_BYTES} are needed")
        self._root = root
        #: Tells this server's key from others.
        self.fingerprint = fingerprint(root)
        self._digest_key = derived(root, "token-digest")
        self._row_key = derived(root, "token-row")

    def digest(self, token: str) -> bytes:
        """Return the digest under which a token is kept."""
        return token_digest(self._digest_key, token.encode())

    def old_digest(self, token: str) -> bytes:
        """Return the digest under which it was kept before the root had derived keys."""
        return hmac.digest(self._root, token.encode(), hashlib.sha256)

    def sealed(self, record: TokenRecord) -> TokenRecord:
        """Return a record with the seal that fits it."""
        return replace(record, seal=self._own_seal(record))

    def fits(self, record: TokenRecord) -> bool:
        """Say whether a record is as it was sealed."""
        return hmac.compare_digest(record.seal, self._own_seal(record))

    def older_seal(self, record: TokenRecord) -> bytes:
        """Return the seal that fits a record in form 2 of the file."""
        return self._seal(record, FORM_2_FIELDS)

    def _own_seal(self, record: TokenRecord) -> bytes:
        """Return the seal of a record: that of form 3, where it has nothing of what came later."""
        plain = record.grants is None and record.process is None
        return self._seal(record, _FORM_3_FIELDS if plain else _SEALED)

    def _seal(self, record: TokenRecord, fields: Sequence[str]) -> bytes:
        values = (getattr(record, field) for field in fields)
        plain = [value.hex() if isinstance(value, float | bytes) else value for value in values]
        return hmac.digest(self._row_key, msgspec.json.encode(plain), hashlib.sha256)


def _date(at: float | None) -> str | None:
    """Return a time in words; a row that was edited may have one that no calendar has."""
    try:
        return rfc3339(at)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
