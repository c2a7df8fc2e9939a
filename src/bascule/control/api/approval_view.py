"""An approval as it is shown to whoever decides: nothing cut off unseen, nothing that deceives."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from bascule.audit.approval_steps import shown_digest
from bascule.clock import rfc3339
from bascule.model.approval import STEPS, Approval, Decided, Shown
from bascule.policy.characters import render_exact
from bascule.wire.api.approvals import ApprovalQuestion, ApprovalShown, DecisionShown

#: How many characters are shown, at most, of arguments and of a definition.
MAX_ARGUMENTS = 64 * 1024
MAX_DEFINITION = 256 * 1024
_MOST_BYTES = 4  # of one character


class _Text(NamedTuple):
    text: str
    whole: bool


class _Described(Struct):
    description: str = ""


def shown(approval: Approval) -> ApprovalShown:
    """Return how a question stands, without what it is about."""
    call = approval.call
    return ApprovalShown(
        id=approval.id,
        state=approval.state,
        server_id=call.server_id,
        tool_name=call.tool_name,
        task_id=call.task_id,
        person=call.person,
        caller=call.caller,
        token_id=call.token_id,
        rule=call.rule,
        session_id=approval.session_id,
        request_id=approval.request_id,
        revision=approval.revision,
        arguments_digest=call.arguments_digest,
        definition_digest=call.definition_digest,
        asked_at=_at(approval.asked_at),
        expires_at=_at(approval.expires_at),
        digest=approval.digest,
        decided=None if approval.decided is None else decision(approval.decided),
        reason=approval.reason,
        claimed_by=approval.claimed_by,
        node=approval.node,
    )


def decision(decided: Decided) -> DecisionShown:
    """Return what somebody decided."""
    return DecisionShown(
        decision=decided.verb,
        by=decided.by,
        token_id=decided.token_id,
        person=decided.person,
        at=_at(decided.at),
        reason=decided.reason,
        self_approved=decided.self_approved,
    )


def question(approval: Approval, contents: Shown | None) -> ApprovalQuestion:
    """Return all that is decided on, or what is missing of it, and why."""
    if contents is None or shown_digest(approval.call, contents) != approval.digest:
        nothing = _Text("", whole=False)
        return _question(approval, nothing, nothing, "", _gone(approval))
    arguments = _rendered(contents.arguments, MAX_ARGUMENTS)
    definition = _rendered(contents.definition, MAX_DEFINITION)
    long = [
        f"the {name} has more than {most} characters: only the beginning is shown"
        for name, part, most in (
            ("text of the arguments", arguments, MAX_ARGUMENTS),
            ("tool's definition", definition, MAX_DEFINITION),
        )
        if not part.whole
    ]
    return _question(approval, arguments, definition, _description(contents), "; ".join(long))


def _question(
    approval: Approval, arguments: _Text, definition: _Text, description: str, missing: str
) -> ApprovalQuestion:
    return ApprovalQuestion(
        **asdict(shown(approval)),
        arguments=arguments.text,
        definition=definition.text,
        description=description,
        whole=arguments.whole and definition.whole,
        missing=missing,
    )


def _gone(approval: Approval) -> str:
    if approval.state not in STEPS:
        return f"it is {approval.state}: what was asked is not kept any longer"
    return (
        "what was asked cannot be read any more: it was changed, or the key of the secrets is "
        "another one now"
    )


def _rendered(written: bytes, most: int) -> _Text:
    """Return JSON as it was written, on several lines, with every character to be seen."""
    if len(written) > most * _MOST_BYTES:
        return _Text(render_exact(written[:most].decode(errors="replace"))[:most], whole=False)
    text = render_exact(msgspec.json.format(written, indent=2).decode())
    return _Text(text[:most], whole=len(text) <= most)


def _description(contents: Shown) -> str:
    """Return what the server says of its tool, on lines as it has them."""
    try:
        found = msgspec.json.decode(contents.definition, type=_Described).description
    except msgspec.DecodeError:
        return ""
    return render_exact(found)[:MAX_DEFINITION]


def _at(seconds: float) -> str:
    return rfc3339(seconds) or ""
