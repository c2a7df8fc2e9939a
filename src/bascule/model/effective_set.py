"""The effective set taken apart: what each layer says of every server and tool of a session."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from bascule.model.decision import Reason
from bascule.model.server import ApprovalMode

#: Who has a word, in their order. A server's record is the platform's, a profile the task's.
LayerName = Literal["platform", "server", "task", "profile", "user", "session"]
LAYERS: tuple[LayerName, ...] = get_args(LayerName)
#: By the platform's word (``effects`` of the server's record), never by the server's.
Effect = Literal["read", "write"]


class LayerVerdict(Struct, frozen=True):
    """What one layer says: yes, no, or (``allowed`` is null) nothing at all.

    ``edit`` is the change that would lift a no, in words with the command where there is one.
    """

    layer: LayerName
    allowed: bool | None
    rule: str | None = None
    reason: Reason | None = None
    edit: str | None = None


class EffectiveTool(Struct, frozen=True, kw_only=True):
    """One tool of a server: ``allowed`` says that the session lists it.

    ``name`` is what models call it, ``tool_name`` what the server does. ``approval`` is what rules
    and modes ask of its calls; ``policy``: it depends on the call. ``edit`` would let it in; null
    where one of the layers that say no cannot be told what to change.
    """

    name: str
    tool_name: str
    effect: Effect
    allowed: bool
    approval: ApprovalMode
    layers: tuple[LayerVerdict, ...]
    edit: str | None


class EffectiveServer(Struct, frozen=True, kw_only=True):
    """One server; ``starts_with`` says that sessions have it which name no servers.

    ``listed`` is false where its tools are not known, since nobody has asked it for them yet.
    """

    server_id: str
    display_name: str
    allowed: bool
    starts_with: bool
    listed: bool
    layers: tuple[LayerVerdict, ...]
    edit: str | None
    tools: tuple[EffectiveTool, ...]
