"""The user record: which servers and tools a person may use, within every task.

In every list, absent and empty differ: absent does not narrow, empty allows nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from bascule.model.keyword import refuse_text
from bascule.model.person import PERSON_PATTERN
from bascule.model.server import ServerId, ToolPattern

GROUP_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,63}$"

UserId = Annotated[
    str, Meta(pattern=PERSON_PATTERN, description="up to 128 of A-Z a-z 0-9 _ . : @ -")
]
Group = Annotated[str, Meta(pattern=GROUP_PATTERN, description="up to 64 of A-Z a-z 0-9 _ . : @ -")]


class UserFilters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What narrows a person."""

    enabled_server_ids: tuple[ServerId, ...] | None = None
    read_only: bool = False
    tool_allowlist: tuple[ToolPattern, ...] | None = None
    tool_denylist: tuple[ToolPattern, ...] = ()

    def __post_init__(self) -> None:
        refuse_text(
            type(self).__name__,
            enabled_server_ids=self.enabled_server_ids,
            tool_allowlist=self.tool_allowlist,
            tool_denylist=self.tool_denylist,
        )


class UserRecord(UserFilters, frozen=True, kw_only=True, omit_defaults=True):
    """One person of the registry: what an administrator set, and the person's ``own`` choice.

    ``own`` narrows what is left further. The person may change it and nothing else, so what they
    switch off can be switched on again, and never more than that.
    """

    user_id: UserId
    version: Literal[1] = 1
    display_name: str = ""
    enabled: bool = True
    groups: tuple[Group, ...] = ()
    own: UserFilters | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_text("UserRecord", groups=self.groups)
