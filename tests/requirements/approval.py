"""Approval: the verdict for a call, and how a grant is obtained, kept and used."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="approval:never",
        text="`never` lets a call go on without approval.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="approval:always",
        text="`always` requires approval for every call.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="approval:per-tool",
        text="A verdict for a tool stands above the verdict for its server.",
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="approval:per-tool:exact",
        text="A verdict for the exact tool name counts before verdicts for patterns.",
        source="DESIGN.md 4, Approval",
        state=Shown(),
    ),
    Requirement(
        id="approval:per-tool:strictest",
        text="Of several patterns that match a tool, the strictest verdict counts.",
        source="DESIGN.md 4, Approval",
        state=Shown(),
    ),
    Requirement(
        id="approval:policy:first-match",
        text="Under `policy` the first matching rule decides.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="approval:policy:no-match",
        text="Under `policy`, approval is required when no rule matches.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="approval:policy:error",
        text="Under `policy`, approval is required when a condition fails to evaluate.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="approval:policy:missing-caller",
        text="Under `policy`, approval is required when the caller is not known.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="approval:policy:deny",
        text="A rule with effect `deny` denies the call.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="approval:policy:condition-on-arguments",
        text="A rule's condition is evaluated over the call's arguments.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="approval:policy:lazy-cel",
        text="The condition language is loaded only when a record has a condition.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="approval:approver:callback",
        text=(
            "A library user's approver is asked with caller, server, tool and arguments, and "
            "its answer counts."
        ),
        source="DESIGN.md 4, Approval",
        state=Shown(),
    ),
    Requirement(
        id="approval:approver:absent",
        text=(
            "Without an approver a call that needs approval answers `mcp_approval_required` "
            "and does not run."
        ),
        source="DESIGN.md 4, Approval",
        state=Shown(),
    ),
    Requirement(
        id="approval:approver:denied",
        text="A refused approval answers `mcp_approval_denied` and does not run.",
        source="DESIGN.md 4, Approval",
        state=Shown(),
    ),
    Requirement(
        id="approval:decide-again",
        text="After a wait for approval the policy decides again before the call is sent.",
        source="DESIGN.md 4, Approval",
        state=Shown(),
    ),
    Requirement(
        id="approval:network:until-built",
        text=(
            "While the control plane has no approvals, a call through it that needs one "
            "answers `mcp_approval_required` and does not run."
        ),
        source="DESIGN.md 4, Approval",
        state=Shown(),
    ),
    Requirement(
        id="approval:grant:single-use",
        text="A grant is used for one call only.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:grant:expires",
        text="A grant that has expired is not honoured.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:grant:bound-caller",
        text="A grant is bound to the caller who asked.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:grant:bound-target",
        text="A grant is bound to server and tool.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:grant:bound-arguments",
        text="A grant is bound to the digest of the arguments.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:grant:bound-definition",
        text="A grant is void when the tool's definition has changed.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:grant:bound-revision",
        text="A grant is bound to the revision that decided it.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:four-eyes",
        text="The principal who asks cannot decide.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:demo-admin",
        text="At the first run a person decides as admin what the demo task's client asked.",
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:paused-turn",
        text=(
            "A paused turn is stored and resumed with the same arguments, and the model is "
            "not asked again."
        ),
        source="DESIGN.md 4, Approval",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:human",
        text="A person can list, grant and deny pending approvals.",
        source="seed 000, Security and governance",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:programmatic",
        text="A program can grant and deny pending approvals through the API.",
        source="seed 000, Security and governance",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="approval:write-tools",
        text="A platform rule can require approval for write tools while read tools need none.",
        source="seed 000, Letting users choose MCP tools",
        state=Shown(),
    ),
    Requirement(
        id="approval:end-to-end",
        text="An approval per tool works from the request to the executed call.",
        source="seed 002, Non-goals",
        state=Deferred(Work.APPROVALS),
    ),
)
