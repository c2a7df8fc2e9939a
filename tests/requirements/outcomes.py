"""What a call gives back: outcomes, error codes and cut output."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="outcomes:shape",
        text='A failed call is `{"error": {"code", "message", "retryable"}}`.',
        source="seed 000, Error model",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:not-the-end",
        text="A tool failure goes back to the model and does not end the conversation.",
        source="seed 000, Error model",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:unavailable",
        text="A call on a server that cannot be reached answers `mcp_unavailable`, retryable.",
        source="seed 000, Error model",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:timeout",
        text="A call that exceeds its time answers `mcp_timeout`.",
        source="seed 000, Error model",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:invalid-arguments",
        text=(
            "Arguments that do not fit the tool's schema answer `mcp_invalid_arguments` with "
            "the path."
        ),
        source="seed 000, Error model",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:policy-denied",
        text="A denied call answers `mcp_policy_denied` with the decision.",
        source="seed 000, Error model",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:too-large",
        text="Output over the cap shows `mcp_output_too_large` together with the cut text.",
        source="seed 000, Error model",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:codes-closed",
        text="The codes are a closed, documented set.",
        source="DESIGN.md 4, Outcomes and errors",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:tool-error",
        text=(
            "A failure that the tool itself reports answers `mcp_tool_error` with the tool's text."
        ),
        source="DESIGN.md 4, Outcomes and errors",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:unknown",
        text="A call whose answer is lost after it was sent answers `mcp_outcome_unknown`.",
        source="DESIGN.md 4, Outcomes and errors",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:one-table",
        text=(
            "One table gives HTTP status, gRPC status, tool JSON and errno for each internal error."
        ),
        source="DESIGN.md 4, Outcomes and errors",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:message:single-text",
        text="The message to a model is the tool's own text when the result is one text block.",
        source="DESIGN.md 4, Outcomes and errors",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:message:json",
        text=(
            "The message is JSON when the result is structured, of several blocks, cut or an error."
        ),
        source="DESIGN.md 4, Outcomes and errors",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:message:always-json",
        text="A setting gives the always-JSON form.",
        source="DESIGN.md 4, Outcomes and errors",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:cut:utf8",
        text="Cut output ends on a UTF-8 boundary.",
        source="DESIGN.md 4, Output",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:cut:valid-json",
        text="Cut output that is carried as JSON is valid JSON.",
        source="DESIGN.md 4, Output",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:cut:marker",
        text="Cut output says so with a marker and a `truncated` field of shown, total and handle.",
        source="DESIGN.md 4, Output",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:cut:answer",
        text=(
            "A cut result is an answer: no error in Python, the error beside `ok` in JSON, counted "
            "apart."
        ),
        source="DESIGN.md 4, Output",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:repeated-once",
        text="What text and structured content both say is counted once, and cut alike.",
        source="DESIGN.md 4, Output",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:media:note",
        text="A text model is given a short note of media, never their bytes.",
        source="DESIGN.md 4, Output",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:cut:handle",
        text="The full text stays readable behind the handle for the life of the session.",
        source="DESIGN.md 4, Output",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:cut:handle-ends",
        text="A handle is gone when its session has ended.",
        source="DESIGN.md 4, Output",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:structured-field",
        text="A cut result carries a structured error field beside its marker.",
        source="seed 000, Failure handling",
        state=Shown(),
    ),
    Requirement(
        id="outcomes:same-at-every-door",
        text=(
            "The same call has the same code at every door; a server that never listed is "
            "`mcp_unavailable`."
        ),
        source="seed 000, Error model",
        state=Shown(),
    ),
)
