"""Who asked does not decide."""

from __future__ import annotations

from bascule.model.approval import Approval, Decider, Separation


def objection(approval: Approval, by: Decider, separation: Separation) -> str | None:
    """Say why somebody may not decide on a call; None if they may.

    Under ``token`` a call of one's own may be decided with another token: see ``is_own``.
    """
    call = approval.call
    if by.token_id is not None and by.token_id == call.token_id:
        return "the token that asked does not decide"
    if call.caller is not None and by.name.casefold() == call.caller.casefold():
        return f"a token named {call.caller!r} asked, and one of its name does not decide"
    if separation == "person" and is_own(approval, by):
        return "whoever asked does not decide (approvals.separation is 'person')"
    return None


def is_own(approval: Approval, by: Decider) -> bool:
    """Say whether it is a call of one's own: of the same person, or by a token that one made."""
    asking = {approval.call.person, approval.maker} - {None}
    deciding = {by.person, by.maker, by.name} - {None}
    if by.person is not None:
        deciding.discard(by.maker)  # a person answers for themselves, whoever made their token
    return bool(asking & deciding)
