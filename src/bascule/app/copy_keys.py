"""The keys that a copied registry is used with: they are in no database, and must fit what is."""

from __future__ import annotations

from pathlib import Path

from bascule.app.copy_tables import SECRETS, SECRETS_HEAD, TOKENS
from bascule.app.copying import NotCopied, Rows
from bascule.app.data_dir import DEFAULT_TASK_FILE, DEMO_MADE_FILE, SETUP_FILE
from bascule.audit.anchors import KEY_NAME as LEDGER_KEY
from bascule.auth.encryption import NotOpened
from bascule.auth.server_key import HOW_TO_GIVE, given_key
from bascule.auth.server_key import KEY_NAME as SERVER_KEY
from bascule.auth.token_record import TokenKeys
from bascule.auth.token_store import record_of_row
from bascule.control.approval_hook import KEY_FILE as HOOK_KEY
from bascule.control.envelope import OuterKey, unseal
from bascule.control.secret_keys import KEY_NAME as SECRETS_KEY
from bascule.control.secret_keys import KeyFile, Keys
from bascule.control.secret_store import Head, Row
from bascule.db.private_files import write_private

#: What whoever serves a registry needs besides its database.
KEY_FILES = (SERVER_KEY, SECRETS_KEY, LEDGER_KEY, HOOK_KEY)


def carry_keys(source: Path, target: Path) -> None:
    """Put the keys and other small files of a data directory into another one without them."""
    if source == target:
        return
    for name in (*KEY_FILES, SETUP_FILE, DEMO_MADE_FILE, DEFAULT_TASK_FILE):
        path = source / name
        if path.is_file():
            write_private(target / name, path.read_bytes(), replace=False)


def server_key_of(folder: Path) -> bytes:
    """Return the key that the tokens of a registry are checked with; raise NotCopied."""
    key = given_key(folder / SERVER_KEY)
    if key is None:
        raise NotCopied(
            f"{folder / SERVER_KEY} is missing, and no token is good without it: {HOW_TO_GIVE}"
        )
    return key


class CopyKeys:
    """The keys of a data directory, or given; ``secrets_key`` is the one of a descriptor."""

    def __init__(self, folder: Path, secrets_key: OuterKey | None = None) -> None:
        self.folder = folder
        self._secrets = Keys(KeyFile(folder / SECRETS_KEY), secrets_key)

    async def check(self, rows: Rows) -> None:
        """Raise NotCopied unless the keys open what is there."""
        if "tokens" in rows.parts:
            await self._check_tokens(rows)
        if "secrets" in rows.parts:
            await self._check_secrets(rows)

    async def _check_tokens(self, rows: Rows) -> None:
        keys = TokenKeys(server_key_of(self.folder))
        records = [record_of_row(row[1:]) async for batch in rows.read(TOKENS) for row in batch]
        if records and not any(keys.fits(record) for record in records):
            raise NotCopied(
                f"the key of {self.folder} is not the one of these tokens: {HOW_TO_GIVE}"
            )

    async def _check_secrets(self, rows: Rows) -> None:
        [head] = [Head(*row) async for batch in rows.read(SECRETS_HEAD) for row in batch]
        async for batch in rows.read(SECRETS):
            key = None if head.key_id is None else self._secrets.find(head.key_id)
            if key is None:
                raise NotCopied(
                    f"the key of the secrets is not in {self.folder}: put {SECRETS_KEY} there, "
                    "give it in BASCULE_SECRETS_KEY, or leave them out with --without-secrets"
                )
            for row in batch:
                _check_opens(key, head, Row(*row))


def _check_opens(key: OuterKey, head: Head, row: Row) -> None:
    try:
        unseal(key, head.place(row.name, row.version), row.envelope)
    except NotOpened:
        raise NotCopied(
            f"the secret {row.name} was changed, and does not open: set it again, or leave "
            "secrets out with --without-secrets"
        ) from None
