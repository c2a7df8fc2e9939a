"""A call that the bridge itself refuses, as an exception inside the bridge.

It never leaves: ``record.py`` turns it into the outcome the caller gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bascule.errors import BasculeError, SessionRefused
from bascule.model.code import ErrorCode
from bascule.model.decision import Decision, Distrust, deny
from bascule.model.outcome import Failure, failure
from bascule.model.tool import ToolDescriptor
from bascule.policy.naming import no_such_tool


class Refused(BasculeError):
    """Why a call does not go on."""

    def __init__(self, refusal: Failure, decision: Decision | None = None) -> None:
        super().__init__(refusal.message)
        self.failure = refusal
        self.decision = decision


def refuse(code: ErrorCode, message: str, **extra: Any) -> Refused:
    """Make a refusal."""
    return Refused(failure(code, message, **extra))


def refused_since(refusal: SessionRefused) -> Refused:
    """Make the refusal of a call whose session may do nothing any more."""
    return refuse("mcp_policy_denied", str(refusal), details={"reason": refusal.reason})


def distrusted(why: Distrust) -> Refused:
    """Make the refusal of a call that nothing known here may decide about any more."""
    problem = failure("mcp_unavailable", why.words, details={"reason": why.reason})
    return Refused(problem, deny("", None, "node", why.reason))


def denied(decision: Decision) -> Refused:
    """Make the refusal of a call that policy denies, with the decision for everyone to see."""
    details = {"decision": msgspec.to_builtins(decision)}
    return Refused(failure("mcp_policy_denied", str(decision), details=details), decision)


def misnamed(
    decision: Decision, tools: Iterable[ToolDescriptor], unlisted: Sequence[str] = ()
) -> Refused:
    """Make the refusal of a name that means no tool, or more than one; ``tools`` may be named.

    ``unlisted`` are servers whose tools are not known, one of which may have been meant.
    """
    return Refused(no_such_tool(decision, tools, unlisted), decision)


def leak_blocked(server: str, tool: str, where: str) -> Refused:
    """Make the refusal of a call that would carry a credential; it says where and which kind."""
    return denied(deny(server, tool, "platform", "leak_blocked", f"hygiene.leaks on {where}"))
