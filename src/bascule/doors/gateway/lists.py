"""``tools/list`` as bytes: made once for what a principal sees, and served until that changes.

A list is a function of the credential: what a token, person, task and narrowing may use at a route,
in the order of names. Long ones come in pages; a cursor belongs to one principal, route and version
of the list.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from bascule.doors.gateway.caller import Caller
from bascule.doors.gateway.kept_outputs import NAME as READ_OUTPUT_NAME
from bascule.doors.gateway.kept_outputs import READ_OUTPUT
from bascule.doors.gateway.messages import RpcError
from bascule.doors.gateway.shapes import tool_for
from bascule.model.json import JsonObject, JsonValue
from bascule.node.bridge.session import Session
from bascule.node.bridge.toolset import ToolSet, harmless
from bascule.wire.rpc_codes import INVALID_PARAMS

MAX_PAGE_TOOLS = 1000
MAX_PAGE_BYTES = 1024 * 1024
#: How much is kept of the lists of one token, and of all.
MAX_TOKEN_BYTES = 16 * 1024 * 1024
MAX_BYTES = 256 * 1024 * 1024
#: What a list is counted with besides its pages: an empty one is kept as well.
LEAST_BYTES = 1024
_VERSION_BYTES = 12
_PLACE_BYTES = 4
_MAC_BYTES = 12

_Key = tuple[str, str, str, str]


class ToolList(Struct, frozen=True, eq=False):
    """A list as it is sent: each page is a JSON array."""

    #: What it was made of; while that is given again, the list stands. It is its session's to keep.
    tools: weakref.ref[ToolSet]
    offers_outputs: bool
    version: bytes
    pages: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Return how many bytes it is kept with: those of its pages, and what any list takes."""
        return LEAST_BYTES + sum(map(len, self.pages))


class Lists:
    """The lists of all principals, within bounds: those that were not asked for longest go."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._kept: OrderedDict[_Key, ToolList] = OrderedDict()
        #: How many bytes are kept, and how many of each token.
        self.size = 0
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def current(self, session: Session, caller: Caller, *, unseen: bool = False) -> ToolList:
        """Return the list as it is now; servers are asked only where theirs is not known.

        One that stays ``unseen`` is not written down as shown.
        """
        tools, offers = await session.tools(unseen=unseen), bool(session.outputs)
        key = (caller.principal.token_id, session.session_id, caller.view.route, caller.version)
        kept = self._kept.get(key)
        if kept is not None and kept.tools() is tools and kept.offers_outputs == offers:
            self._kept.move_to_end(key)
            return kept
        shown = ((tool.definition, caller.view.shown(tool)) for tool in tools)
        entries = [_entry(one, name, caller) for one, name in shown if name != READ_OUTPUT_NAME]
        if offers:
            entries.append(msgspec.json.encode(tool_for(READ_OUTPUT, caller.version)))
        made = ToolList(weakref.ref(tools), offers, _version(entries), tuple(_pages(entries)))
        self._keep(key, made)
        return made

    def page(self, found: ToolList, cursor: JsonValue, caller: Caller) -> tuple[bytes, str | None]:
        """Return a page and the cursor of the next one; raise RpcError for a cursor of no use."""
        place = 0 if cursor is None else self._place(found, cursor, caller)
        following = place + 1
        more = self._cursor(found, following, caller) if following < len(found.pages) else None
        return found.pages[place], more

    def _place(self, found: ToolList, cursor: JsonValue, caller: Caller) -> int:
        text = cursor if isinstance(cursor, str) and cursor.isascii() else ""
        try:
            place = int.from_bytes(base64.urlsafe_b64decode(text)[:_PLACE_BYTES])
        except ValueError:
            place = 0
        right = 0 < place < len(found.pages)
        if not right or not hmac.compare_digest(text, self._cursor(found, place, caller)):
            words = "cursor: not one of this list as it is now; list from the start again"
            raise RpcError(INVALID_PARAMS, words)
        return place

    def _cursor(self, found: ToolList, place: int, caller: Caller) -> str:
        who = caller.principal
        bound = (found.version, place, caller.view.route, who.token_id, who.person)
        mac = hmac.digest(self._key, msgspec.msgpack.encode(bound), "sha256")
        sealed = place.to_bytes(_PLACE_BYTES) + mac[:_MAC_BYTES]
        return base64.urlsafe_b64encode(sealed).decode("ascii")

    def _keep(self, key: _Key, made: ToolList) -> None:
        self._drop(key)
        self._kept[key] = made
        self._count(key[0], made.size)
        while self._sizes.get(key[0], 0) > MAX_TOKEN_BYTES:
            self._drop(next(one for one in self._kept if one[0] == key[0]))
        while self.size > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._count(key[0], -gone.size)

    def _count(self, token: str, size: int) -> None:
        self.size += size
        left = self._sizes.get(token, 0) + size
        if left:
            self._sizes[token] = left
        else:
            self._sizes.pop(token, None)


def _entry(definition: JsonObject, name: str, caller: Caller) -> bytes:
    shown: JsonObject = {**harmless(definition), "name": name}
    return msgspec.json.encode(tool_for(shown, caller.version))


def _version(entries: Sequence[bytes]) -> bytes:
    digest = hashlib.blake2s(digest_size=_VERSION_BYTES)
    for entry in entries:
        digest.update(b"%d:" % len(entry))
        digest.update(entry)
    return digest.digest()


def _pages(entries: Sequence[bytes]) -> Iterator[bytes]:
    """Join entries to arrays; there is always a page, if an empty one."""
    page: list[bytes] = []
    size = 0
    for entry in entries:
        if page and (len(page) >= MAX_PAGE_TOOLS or size + len(entry) > MAX_PAGE_BYTES):
            yield b"[%b]" % b",".join(page)
            page, size = [], 0
        page.append(entry)
        size += len(entry) + 1
    yield b"[%b]" % b",".join(page)


#: The version of a list without any tool.
NOTHING = _version(())
