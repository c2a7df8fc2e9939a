"""Decisions that explain themselves: what, which layer, which rule, which stable reason."""

from __future__ import annotations

from typing import Literal, Self

from msgspec import Struct

from bascule.model.code import CODES, ErrorCode

Layer = Literal["platform", "task", "user", "session", "node"]
Reason = Literal[
    "allowed",
    # platform
    "unknown_server",
    "server_disabled",
    "deny_all",
    "not_in_allowed_tools",
    "platform_denied",
    "unknown_tool",
    "name_collision",
    "ambiguous_name",
    # task
    "no_task",
    "task_disabled",
    "unknown_profile",
    "not_allowed",
    "not_default",
    "task_not_allowlisted",
    "task_denied",
    "task_read_only",
    "over_max_tools",
    # user
    "unknown_user",
    "user_disabled",
    "group_not_allowed",
    "user_not_enabled",
    "user_not_allowlisted",
    "user_denied",
    "user_read_only",
    # session
    "session_disabled",
    "not_requested",
    "session_not_allowlisted",
    "session_denied",
    "session_read_only",
    # rules on arguments
    "rule_denied",
    "leak_blocked",
    # node
    "env_missing",
    "secret_unbound",
    "list_timeout",
    "unavailable",
    "launch_denied",
    "quarantined",
    "ledger_unavailable",
    "stale",
    "node_refused",
]

MEANING: dict[Reason, str] = {
    "allowed": "every layer allows it",
    "unknown_server": "no server of that id is registered",
    "server_disabled": "the server's record says enabled = false",
    "deny_all": "the server's record allows no tool",
    "not_in_allowed_tools": "the server's allowed_tools do not cover it",
    "platform_denied": "the platform's denylist names it",
    "unknown_tool": "there is no tool of that name",
    "name_collision": "two tools would get the same name",
    "ambiguous_name": "the name could mean more than one tool",
    "no_task": "there is no such task",
    "task_disabled": "the task does not enable MCP",
    "unknown_profile": "the task names a profile that does not exist",
    "not_allowed": "the server is outside the task's allowed servers",
    "not_default": "the task allows the server but does not use it unless asked to",
    "task_not_allowlisted": "the task's tool allowlist does not cover it",
    "task_denied": "the task's tool denylist names it",
    "task_read_only": "the task is read-only and the tool is not classed as read",
    "over_max_tools": "the task's max_tools leaves room for others only",
    "unknown_user": "the person has no record in the registry",
    "user_disabled": "the person's record says enabled = false",
    "group_not_allowed": "the task is for groups that the person is not in",
    "user_not_enabled": "the person's record does not enable the server",
    "user_not_allowlisted": "the person's tool allowlist does not cover it",
    "user_denied": "the person's tool denylist names it",
    "user_read_only": "the person's record is read-only and the tool is not classed as read",
    "session_disabled": "the session does not enable MCP",
    "not_requested": "the session does not use the server",
    "session_not_allowlisted": "the session's tool allowlist does not cover it",
    "session_denied": "the session's tool denylist names it",
    "session_read_only": "the session is read-only and the tool is not classed as read",
    "rule_denied": "an approval rule denies the call",
    "leak_blocked": "what looks like a credential was found, and the record says to block it",
    "env_missing": "a variable or secret the server needs is not there",
    "secret_unbound": "a secret the server refers to is not bound to it as its record stands",
    "list_timeout": "the server did not list its tools in time",
    "unavailable": "the server cannot be reached",
    "launch_denied": "the node's rules refuse to start or reach the server",
    "quarantined": "the tool's definition cannot be used",
    "ledger_unavailable": "what happens cannot be written down, so nothing is sent",
    "stale": "the node has not heard from its control plane for too long to decide anything",
    "node_refused": "the control plane refuses the node, which decides nothing any more",
}


#: Names that nobody could decide on: no denial, but a mistake of whoever wrote them.
_NO_NAME = frozenset[Reason]({"unknown_tool", "ambiguous_name"})
#: Denials by name, which hold whether or not there is such a tool.
_VETOES = frozenset[Reason]({"platform_denied", "task_denied", "user_denied", "session_denied"})


class Decision(Struct, frozen=True):
    """One line of the decision log. ``tool`` is None when the line is about a server.

    ``server`` is empty where a name could be of any.
    """

    server: str
    tool: str | None
    allowed: bool
    layer: Layer
    reason: Reason
    rule: str = ""

    @property
    def names_nothing(self) -> bool:
        """Say whether it is about a name that means no tool, or more than one."""
        return self.reason in _NO_NAME

    @property
    def vetoes_name(self) -> bool:
        """Say whether a layer denies the name itself: no list of tools can change that."""
        return self.reason in _VETOES

    def __str__(self) -> str:
        what = "/".join(filter(None, (self.server, self.tool))) or repr(self.tool)
        if self.names_nothing:
            return f"{what}: {MEANING[self.reason]}"
        verdict = "allowed" if self.allowed else "denied"
        because = f" by {self.rule}" if self.rule else ""
        return f"{what}: {verdict} at the {self.layer} layer{because}: {MEANING[self.reason]}"


class Unlisted(Struct, frozen=True, kw_only=True):
    """Why a server gave a session no tools: policy keeps it out, or the node could not ask it.

    ``server_id`` is empty where no server could be asked at all.
    """

    server_id: str
    code: ErrorCode
    reason: Reason
    message: str

    @property
    def retryable(self) -> bool:
        """Say whether it may list later, with nothing changed here."""
        return CODES[self.code].retryable

    @classmethod
    def because(cls, decision: Decision) -> Self:
        """Return the denial of a server as the reason why it did not list."""
        by_node = decision.layer == "node"
        return cls(
            server_id=decision.server,
            code="mcp_unavailable" if by_node else "mcp_policy_denied",
            reason=decision.reason,
            message=decision.rule if by_node else MEANING[decision.reason],
        )


def allow(server: str, tool: str | None) -> Decision:
    """Say yes."""
    return Decision(server, tool, True, "session", "allowed")  # noqa: FBT003 - read with its name


def deny(server: str, tool: str | None, layer: Layer, reason: Reason, rule: str = "") -> Decision:
    """Say no, and why."""
    return Decision(server, tool, False, layer, reason, rule)  # noqa: FBT003 - read with its name


class Distrust(Struct, frozen=True):
    """Why a node may decide nothing by what it knows, in words."""

    reason: Literal["stale", "node_refused"]
    words: str

    def __str__(self) -> str:
        return self.words
