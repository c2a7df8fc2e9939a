"""Links to the admin page: a code that is exchanged for a token of the page, once.

A link is a token of role ``link`` that may do nothing else. What it is exchanged for has the role,
the person and the task that the link was made for, and ends with the process, after twelve hours,
or when it was not used for half an hour. A code that comes a second time was seen by somebody else:
it ends the token that it gave.

Replicas behind one address share links and pages: a browser that is sent from one to the next would
be logged out at every other request. It is safe because nothing of it is in one process's memory: a
page takes the place of its link in one transaction, its id is derived from the code, and when it
was used is told through the database. Such a page outlives each process, not its half an hour.

A link may also be made to confirm: beyond loopback, the page shows such a code with what it asks.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from bascule.auth.identity import Principal
from bascule.auth.token_record import TokenRecord
from bascule.auth.token_request import TokenRequest, refuse_unfit
from bascule.auth.tokens import PROCESS, Minted, Tokens
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.role import ROLES, Role

LINK_SECONDS = 600.0
PAGE_SECONDS = 12 * 3_600.0
#: How long the page that shows a code first may show it again.
CONFIRM_SECONDS = 300.0
#: The roles that have something to see on the page.
PAGE_ROLES: tuple[Role, ...] = tuple(role for role in ROLES if role != "node")
_CONFIRMING = TokenRequest(
    name="confirmation", role="admin", grants="confirm", ttl_seconds=LINK_SECONDS
)


class InvalidCode(BasculeError):
    """A code that opens nothing; whether it ever did is not told."""

    code = "invalid_code"


async def make_link(tokens: Tokens, wanted: TokenRequest, *, by: str) -> Minted:
    """Make a link to a page whose token is as wanted, but for its end; raise InvalidRecord."""
    refuse_unfit(wanted)
    if wanted.role not in PAGE_ROLES:
        raise InvalidRecord([f"role: {wanted.role!r} has no page; one of: {', '.join(PAGE_ROLES)}"])
    link = replace(wanted, grants=wanted.role, ttl_seconds=LINK_SECONDS)
    return await tokens.keep(link, by=by)


async def make_confirmation(tokens: Tokens, *, by: str) -> Minted:
    """Make a code that confirms what a page asks for."""
    return await tokens.keep(_CONFIRMING, by=by)


class Links:
    """Where whoever has a code exchanges it."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._one_by_one = asyncio.Lock()

    async def look(self, code: str) -> TokenRecord:
        """Return the link of a code, and leave it as it is; raise InvalidCode."""
        async with self._one_by_one:
            return await self._link(code)

    async def exchange(self, code: str) -> Minted:
        """Exchange a code for the token of a page; raise InvalidCode."""
        async with self._one_by_one:
            link = await self._link(code)
            page_id = self._tokens.page_id(code)
            page = await self._tokens.exchange(
                link, self._page(link), by=link.made_by or PROCESS, page_id=page_id
            )
            if page is None:  # another replica was faster: it was shown twice
                await self._tokens.revoke(page_id, by=PROCESS)
                raise _invalid()
            await self._tokens.sweep()
            return page

    async def _link(self, code: str) -> TokenRecord:
        link = await self._tokens.look_up(code)
        if link is not None and link.role == "link" and link.grants in ROLES:
            return link
        given = self._tokens.page_id(code)
        if any(record.id == given for record in await self._tokens.records()):
            await self._tokens.revoke(given, by=PROCESS)
        raise _invalid()

    def _page(self, link: TokenRecord) -> TokenRequest:
        role = page_role(link)
        return TokenRequest(
            name=f"page of {link.person or role}",
            role=role,
            task_id=link.task_id,
            person=link.person,
            tasks=link.tasks,
            ttl_seconds=PAGE_SECONDS,
            process=self._tokens.process,
        )

    async def confirms(self, code: str, page: Principal) -> bool:
        """Say whether a code confirms what a page asks for.

        It is the page's that shows it first, which may show it again for five minutes.
        """
        async with self._one_by_one:
            mine, by = f"{_CONFIRMING.name} of {page.token_id}", f"{page.role}:{page.name}"
            while True:  # once, unless it comes to two replicas at the same time
                link = await self._tokens.look_up(code)
                if link is None or link.grants != "confirm":
                    return False
                if link.name != _CONFIRMING.name:
                    return link.name == mine
                if await self._tokens.reserve(link, mine, seconds=CONFIRM_SECONDS, by=by):
                    return True


def page_role(record: TokenRecord) -> Role:
    """Return the role of a page: of its token, or of the link that is exchanged for one."""
    return next(role for role in ROLES if role in (record.role, record.grants))


def _invalid() -> InvalidCode:
    return InvalidCode(
        "this code was used, has expired or is not a code of this process; "
        "make a new link with: bascule web"
    )
