"""The table ``[approvals]`` of ``bascule.toml``."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from bascule.model.approval import Separation

_Seconds = Annotated[int, Meta(ge=1, le=604_800)]


class ApprovalSettings(Struct, frozen=True, kw_only=True):
    """How long approvals last, who may give them, and which program is asked first.

    ``decide_seconds`` is how long a question waits for an answer, ``claim_seconds`` how long a yes
    can be used. Without ``separation`` it is "person" as soon as the registry knows two of them.
    """

    decide_seconds: _Seconds = 3_600
    claim_seconds: _Seconds = 900
    #: How many questions of one token may wait at once.
    max_pending: Annotated[int, Meta(ge=1, le=10_000)] = 100
    separation: Separation | None = None
    #: Checked by ``bascule.control.hook_address``; the program there has so long to answer.
    hook_url: str | None = None
    hook_seconds: Annotated[int, Meta(ge=1, le=60)] = 10
