"""Tokens: 32 random bytes each, of which only a keyed digest is kept.

A token is looked up by its HMAC-SHA256 under a key derived from the server's, so neither the store
nor the time that a lookup takes tells anything about it. Random tokens need no slow hash. What was
looked up is remembered under a faster digest with a key of this process, until anything is written
to the store. A row whose seal does not fit is nobody's token.

That a token is made or ended is noted before it is done; what cannot be noted is not done.

The setup token is for setting up: the first start makes it, and the first administrator's token
that anybody makes with it, or beside it, ends it. Its file goes with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias, Unpack

from msgspec import Struct
from msgspec.structs import replace

from bascule.audit.events import Act, TokenEnded, TokenMade
from bascule.audit.log_lines import say
from bascule.auth.identity import Principal
from bascule.auth.key_text import KEY_BYTES
from bascule.auth.keys import KeyLabel, derived
from bascule.auth.memory_token_store import TokenStore
from bascule.auth.page_uses import PageUses
from bascule.auth.token_record import PREFIX, TokenKeys, TokenRecord, principal_of
from bascule.auth.token_request import TokenOptions, TokenRequest, refuse_unfit
from bascule.clock import Clock
from bascule.db.errors import StoreUnavailable
from bascule.db.private_files import write_private
from bascule.model.role import Role
from bascule.wire.api.tokens import TokenShown, TokenState

#: Writes down what somebody is about to do, or raises (``Ledger.note``).
Note: TypeAlias = Callable[[Act], Awaitable[None]]

logger = logging.getLogger("bascule.tokens")

_RANDOM_BYTES = 32
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
#: How many tokens are remembered with whose they are: those of ten thousand nodes, who are all
#: asked about with every bookmark, and of their clients.
MAX_KNOWN = 16_384
#: The setup token is one of a kind, so that whoever ends it need not know it.
SETUP_ID = "tok-setup"
#: In whose name the process itself acts.
PROCESS = "bascule"


class Minted(Struct, frozen=True):
    """A new token, to be shown once, and what is kept of it."""

    token: str
    record: TokenRecord


class Tokens:
    """Mints, verifies and revokes tokens under one server key.

    ``setup_file`` is where the first start leaves the setup token, and whence it goes. ``note``
    writes down who makes and ends tokens; without it nobody does.
    """

    def __init__(
        self,
        store: TokenStore,
        key: bytes,
        clock: Clock,
        *,
        setup_file: Path | None = None,
        note: Note | None = None,
    ) -> None:
        self.note = note
        #: Raises SessionRefused for a person who is not known, or switched off.
        self.standing: Callable[[str], object] | None = None
        self._store = store
        self._keys = TokenKeys(key)
        #: Gives the keys for other uses of the server's.
        self.key_for: Callable[[KeyLabel], bytes] = partial(derived, key)
        self._clock = clock
        self._setup_file = setup_file
        #: The process with which the tokens of pages end; one that serves has a mark of its own.
        self.process = secrets.token_hex(8)
        #: Of pages; replicas tell each other.
        self.uses = PageUses(clock)
        self._memory_key = secrets.token_bytes(KEY_BYTES)
        #: Whose tokens are, by another digest of theirs, and until when; of one state of the store.
        self._known: dict[bytes, tuple[Principal, float]] = {}
        self._known_state: object = None
        #: All records as they were read last, and those of them whose seal fits.
        self._judged: tuple[tuple[TokenRecord, ...], tuple[TokenRecord, ...]] = (), ()
        self._warned: set[str] = set()

    async def mint(
        self,
        name: str,
        role: Role,
        *,
        by: str = PROCESS,
        maker: str | None = None,
        **options: Unpack[TokenOptions],
    ) -> Minted:
        """Make a token, in the name of ``by``. It is returned here and can never be read again.

        ``maker`` is who answers for it where the ledger's word for them is another. An
        administrator's ends the setup token: it has served. Raise LedgerUnavailable when it cannot
        be noted; then nothing is done.
        """
        wanted = TokenRequest(name=name, role=role, **options)
        refuse_unfit(wanted)
        minted = self._made(wanted, maker or by)
        ends_setup = role == "admin" and await self._is_there(SETUP_ID)
        await self._note_made(minted.record, by)
        if ends_setup:
            await self._note_ended(SETUP_ID, by)
        await self._store.add(minted.record)
        if role == "admin":
            await self._remove(SETUP_ID)
        return minted

    async def keep(self, wanted: TokenRequest, *, by: str, maker: str | None = None) -> Minted:
        """Make a token of what was found fit, in the name of ``by``; note it first."""
        minted = self._made(wanted, maker or by)
        await self._note_made(minted.record, by)
        await self._store.add(minted.record)
        return minted

    async def exchange(
        self, link: TokenRecord, page: TokenRequest, *, by: str, page_id: str
    ) -> Minted | None:
        """Put the token of a page in the place of its link; None if that is gone. Note it first."""
        minted = self._made(page, by, token_id=page_id)
        await self._note_ended(link.id, by)
        await self._note_made(minted.record, by)
        if not await self._store.replace(link, minted.record):
            return None
        self.uses.use(page_id)
        return minted

    async def reserve(self, code: TokenRecord, name: str, *, seconds: float, by: str) -> bool:
        """Give a code another name, for so many seconds; False if somebody else did something.

        To everybody else it has ended, and so it is noted.
        """
        await self._note_ended(code.id, by)
        taken = replace(code, name=name, expires_at=self._clock.now() + seconds)
        return await self._store.replace(code, self._keys.sealed(taken))

    def page_id(self, code: str) -> str:
        """Return the id of the page that a code is exchanged for, at whatever replica."""
        digest = self._keys.digest(code.encode("utf-8", "replace").decode())
        return f"tok-{hashlib.sha256(digest).hexdigest()[:16]}"

    async def verify(self, token: str) -> Principal | None:
        """Return whose token this is; None if it is nobody's, expired, revoked or altered.

        Raise SessionRefused for a token of somebody who may do nothing now. A client's is asked
        about where its session is opened, as a task may let in others. For a page it is a use.
        """
        principal = await self.still(token)
        return None if principal is None else self._noted_use(principal)

    async def still(self, token: str) -> Principal | None:
        """Return as ``verify`` whose token this is, and do not take that for a use of it."""
        if not _TOKEN.fullmatch(token):
            return None
        known, key = self._known_now(), self._memory_digest(token.encode())
        if key in known:
            return await self._living(*known[key])
        record = await self._found(token)
        principal = None if record is None else principal_of(record)
        if record is None or principal is None or not self._is_here(record):
            return None
        until = math.inf if record.expires_at is None else record.expires_at
        if principal.person is not None and principal.role != "client":
            if self.standing is not None:
                self.standing(principal.person)
        else:  # whoever has to be asked about each time is not remembered
            if len(known) >= MAX_KNOWN:
                known.clear()
            known[key] = principal, until
        return await self._living(principal, until)

    async def _living(self, principal: Principal, until: float) -> Principal | None:
        """Return whose a token is, unless it has ended; a page that was idle has for good."""
        if principal.page:
            await self.uses.refresh(principal.token_id)
            if self.uses.idles(principal.token_id):
                self.uses.end(principal.token_id)
        return self._unexpired(principal, until)

    async def look_up(self, token: str) -> TokenRecord | None:
        """Return what is kept of a token that has not expired, a link's too; it is not used."""
        record = await self._found(token) if _TOKEN.fullmatch(token) else None
        return record if record is not None and self._state(record) == "valid" else None

    async def _found(self, token: str) -> TokenRecord | None:
        """Return a token's record, its seal unbroken; one of the older kind is kept anew."""
        digest, older = self._keys.digest(token), self._keys.old_digest(token)
        record = await self._store.by_digest(digest, older)
        if record is None or not self._fits(record):
            return None
        if hmac.compare_digest(record.digest, digest):
            return record
        if not hmac.compare_digest(record.digest, older):
            return None
        return await self._kept_anew(record, digest)

    async def _kept_anew(self, record: TokenRecord, digest: bytes) -> TokenRecord | None:
        """Keep a token under its new digest; None if somebody revoked it meanwhile."""
        renewed = self._keys.sealed(replace(record, digest=digest))
        try:
            if await self._store.replace(record, renewed):
                return renewed
        except StoreUnavailable:
            return record  # it is as good as before, and is kept anew at another use
        found = await self._store.by_digest(digest)  # another process may have been faster
        return found if found is not None and self._fits(found) else None

    def _fits(self, record: TokenRecord) -> bool:
        """Say whether a record is as it was made; the log names one that is not, once."""
        if self._keys.fits(record):
            return True
        if record.id not in self._warned and len(self._warned) < MAX_KNOWN:
            self._warned.add(record.id)
            say(
                logger,
                logging.WARNING,
                f"token {record.id!r} is refused: somebody edited what is kept of it; "
                "revoke it (bascule tokens revoke) and make another",
                token_id=record.id,
            )
        return False

    def recall(self, token: bytes) -> Principal | None:
        """Return what ``verify`` found, while nobody wrote to the store; None says nothing."""
        known = self._known_now().get(self._memory_digest(token))
        principal = None if known is None else self._unexpired(*known)
        return None if principal is None else self._noted_use(principal)

    def state(self) -> object:
        """Return what is another after every change of any token; None while unsure."""
        return self._store.state()

    def _known_now(self) -> dict[bytes, tuple[Principal, float]]:
        """Return what was found in this state of the store; what is found next belongs to it."""
        state = self._store.state()
        if state is None:
            return {}
        if state != self._known_state:
            self._known_state, self._known = state, {}
        return self._known

    def _memory_digest(self, token: bytes) -> bytes:
        return hashlib.blake2s(token, key=self._memory_key).digest()

    def _unexpired(self, principal: Principal, until: float) -> Principal | None:
        if principal.page and self.uses.idles(principal.token_id):
            return None
        return principal if until == math.inf or self._clock.now() < until else None

    def _noted_use(self, principal: Principal) -> Principal:
        if principal.page:
            self.uses.use(principal.token_id)
        return principal

    def _is_here(self, record: TokenRecord) -> bool:
        """Say whether a token is of this process, if it is of one."""
        return record.process is None or record.process == self.process

    async def revoke(self, token_id: str, *, by: str = PROCESS) -> bool:
        """End a token from its next use on, in the name of ``by``; say whether there was one.

        Raise LedgerUnavailable when it cannot be noted; then it goes on.
        """
        if await self._is_there(token_id):
            await self._note_ended(token_id, by)
        return await self._remove(token_id)

    async def _remove(self, token_id: str) -> bool:
        removed = await self._store.remove(token_id)
        if token_id == SETUP_ID and self._setup_file is not None:
            self._setup_file.unlink(missing_ok=True)
        return removed

    async def sweep(self) -> None:
        """Forget links that have expired and pages that have ended.

        Only the process that serves knows which pages have.
        """
        for record in await self._with_uses():
            passing = record.role == "link" or record.process is not None
            if passing and self._state(record) == "expired":
                await self._store.remove(record.id)

    async def _is_there(self, token_id: str) -> bool:
        """Say whether there is such a token, where anybody wants to know."""
        if self.note is None:
            return False
        return any(record.id == token_id for record in await self._store.records())

    async def _note_made(self, record: TokenRecord, by: str) -> None:
        if self.note is not None:
            await self.note(
                TokenMade(
                    timestamp=self._clock.now(),
                    by=by,
                    token_id=record.id,
                    name=record.name,
                    role=record.role,
                    task_id=record.task_id,
                    expires_at=record.expires_at,
                    person=record.person,
                    acts_for_users=record.acts_for_users,
                    tasks=record.tasks,
                    grants=record.grants,
                )
            )

    async def _note_ended(self, token_id: str, by: str) -> None:
        if self.note is not None:
            await self.note(TokenEnded(timestamp=self._clock.now(), by=by, token_id=token_id))

    async def records(self) -> tuple[TokenRecord, ...]:
        """Return what is kept of all tokens."""
        return await self._store.records()

    async def unaltered(self) -> tuple[TokenRecord, ...]:
        """Return the records of tokens that nobody edited."""
        records = await self._store.records()
        if records is not self._judged[0]:
            self._judged = records, tuple(filter(self._fits, records))
        return self._judged[1]

    async def listing(self) -> tuple[TokenShown, ...]:
        """Return what anybody is shown of all tokens, the oldest first."""
        return tuple(record.shown(self._state(record)) for record in await self._with_uses())

    async def _with_uses(self) -> tuple[TokenRecord, ...]:
        """Return all records, once it is known when those of pages were used."""
        records = await self._store.records()
        pages = {record.id for record in records if record.process is not None}
        self.uses.retain(pages)
        await self.uses.refresh(*pages)
        return records

    def _state(self, record: TokenRecord) -> TokenState:
        if not self._fits(record):
            return "altered"
        ended = record.expires_at is not None and record.expires_at <= self._clock.now()
        gone = not self._is_here(record) or self.uses.idles(record.id)
        return "expired" if ended or gone else "valid"

    async def first_start(self) -> str | None:
        """Make the setup token when there is no token at all, and write it to its private file.

        Return it to be printed this once, or None when the server has been set up before, or is
        being set up by another replica. The file comes first: if the process dies in between, the
        next start finds no token in the store and replaces the file.
        """
        file = self._setup_file
        if file is None:
            raise ValueError("a setup token needs a file to be left in")
        await self.sweep()
        minted = self._made(TokenRequest(name="setup", role="admin"), PROCESS, token_id=SETUP_ID)

        async def prepare() -> None:
            await self._note_made(minted.record, PROCESS)
            write_private(file, minted.token.encode() + b"\n")

        if await self._store.add_first(minted.record, prepare):
            return minted.token
        if not await self._is_setup(file):
            file.unlink(missing_ok=True)  # whoever ended its token died before this
        return None

    async def _is_setup(self, file: Path) -> bool:
        """Say whether a file has the setup token that there is."""
        try:
            token = await asyncio.to_thread(file.read_text, encoding="utf-8", errors="replace")
        except OSError:
            return False
        record = await self.look_up(token.strip())
        return record is not None and record.id == SETUP_ID

    def _made(self, wanted: TokenRequest, maker: str, *, token_id: str | None = None) -> Minted:
        token = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        now = float(self._clock.now())
        record = TokenRecord(
            id=token_id or f"tok-{secrets.token_hex(8)}",
            name=wanted.name,
            role=wanted.role if wanted.grants is None else "link",
            task_id=wanted.task_id,
            person=wanted.person,
            created_at=now,
            expires_at=None if wanted.ttl_seconds is None else now + wanted.ttl_seconds,
            digest=self._keys.digest(token),
            acts_for_users=wanted.acts_for_users,
            made_by=maker,
            tasks=None if wanted.tasks is None else tuple(dict.fromkeys(wanted.tasks)),
            grants=wanted.grants,
            process=wanted.process,
        )
        return Minted(token, self._keys.sealed(record))
