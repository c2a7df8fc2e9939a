"""The backend record: an OpenAI-compatible server that answers for models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from bascule.model.server import HeaderName, Milliseconds, NonEmpty

BackendName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$",
        description="up to 64 of a-z 0-9 _ . -",
    ),
]


class BackendRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One upstream for chat completions."""

    name: BackendName
    base_url: NonEmpty
    version: Literal[1] = 1
    enabled: bool = True
    key_ref: NonEmpty | None = None
    headers: Mapping[HeaderName, str] = {}
    models: tuple[NonEmpty, ...] = ()
    connect_timeout_ms: Milliseconds = 10_000
    request_timeout_ms: Milliseconds = 600_000
    insecure: bool = False
