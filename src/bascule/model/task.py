"""The task record: which servers a task uses by default, and the most it may ever use.

In every list, absent and empty differ: absent does not narrow, empty allows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from bascule.model.json import JsonObject
from bascule.model.keyword import refuse_text
from bascule.model.server import NonEmpty, ServerId, Tag, ToolPattern
from bascule.model.session import Count, Iterations, OutputBytes
from bascule.model.user import Group

#: A tool's own text where that is all there is, and JSON otherwise; or JSON always.
ToolOutput = Literal["auto", "always_json"]
#: Whether a client that acts for people may name one who has no record.
Users = Literal["records", "open"]

TASK_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"
PROFILE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"

DEFAULT_MAX_TOOLS = 128

TaskId = Annotated[
    str, Meta(pattern=TASK_ID_PATTERN, description="up to 128 of A-Z a-z 0-9 _ . : -")
]
ProfileName = Annotated[
    str, Meta(pattern=PROFILE_PATTERN, description="up to 64 of A-Z a-z 0-9 _ . -")
]


class Selection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Servers and tool filters, as a task, a profile or an override gives them."""

    default_server_ids: tuple[ServerId, ...] | None = None
    allowed_server_ids: tuple[ServerId, ...] | None = None
    server_tags: tuple[Tag, ...] | None = None
    tool_allowlist: tuple[ToolPattern, ...] | None = None
    tool_denylist: tuple[ToolPattern, ...] = ()
    read_only: bool = False

    def __post_init__(self) -> None:
        refuse_text(
            type(self).__name__,
            default_server_ids=self.default_server_ids,
            allowed_server_ids=self.allowed_server_ids,
            server_tags=self.server_tags,
            tool_allowlist=self.tool_allowlist,
            tool_denylist=self.tool_denylist,
        )


class TaskBudgets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task leaves to one conversation; None leaves it to whoever holds that."""

    max_iterations: Iterations | None = None
    max_total_tool_calls: Count | None = None
    tool_output: ToolOutput | None = None


class TaskPolicy(Selection, frozen=True, kw_only=True, omit_defaults=True):
    """The ``mcp`` object of a task: off unless enabled.

    ``max_tools`` is how many tools a session offers: models do worse with more than they need. Its
    budgets only lower what the process allows: turns and calls of one chat request, and what one
    call may give. ``tool_output`` is the form in which a model reads results.

    With ``allowed_groups`` its sessions are for people of one of these groups and nobody else.
    ``user_from_request`` lets a client that acts for people name one in a chat request.
    ``approval_wait_ms`` is how long a call through the gateway waits for approval before it answers
    that it needs one: 30 s where nothing is said and its client takes a stream, else not at all.
    """

    enabled: bool = False
    max_tools: Annotated[int, Meta(ge=1, le=10_000)] = DEFAULT_MAX_TOOLS
    profile: ProfileName | None = None
    profile_overrides: Selection | None = None
    max_iterations: Iterations | None = None
    max_total_tool_calls: Count | None = None
    max_tool_output_bytes: OutputBytes | None = None
    tool_output: ToolOutput | None = None
    users: Users = "records"
    allowed_groups: tuple[Group, ...] | None = None
    user_from_request: bool = False
    approval_wait_ms: Annotated[int, Meta(ge=0, le=600_000)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_text("TaskPolicy", allowed_groups=self.allowed_groups)

    @property
    def budgets(self) -> TaskBudgets:
        """Return what it says of conversations."""
        return TaskBudgets(
            max_iterations=self.max_iterations,
            max_total_tool_calls=self.max_total_tool_calls,
            tool_output=self.tool_output,
        )


class Executable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task runs: a WASM module and its checksum."""

    path: NonEmpty
    type: Literal["wasm"] = "wasm"
    checksum_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")] | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class TaskRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task of the registry. ``config`` keeps what is not ``mcp.*``, untouched."""

    task_id: TaskId
    version: Literal[1] = 1
    name: str = ""
    description: str = ""
    mcp: TaskPolicy = TaskPolicy()
    config: JsonObject = {}
    executable: Executable | None = None
