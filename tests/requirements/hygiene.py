"""Cleaning of what passes: control characters, leaks and redaction."""

from tests.requirements.model import Requirement, Shown

ENTRIES = (
    Requirement(
        id="hygiene:control-characters",
        text="Terminal control sequences in results are neutralised and counted.",
        source="seed 003, Security Considerations",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:invisible-characters",
        text="Bidirectional and tag characters in results are neutralised and counted.",
        source="seed 003, Security Considerations",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:directional-marks",
        text="Directional marks that belong to the script of their text stay in it.",
        source="seed 003, Security Considerations",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:leaks:arguments",
        text="Arguments are scanned for credentials.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:leaks:results",
        text="Results are scanned for credentials.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:leaks:mask",
        text="Under `mask` a found credential is replaced.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:leaks:definitions",
        text="Definitions of tools are scanned like results, and shown masked.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:leaks:few-false",
        text="Ordinary configuration, lock and source files are masked at most once in a megabyte.",
        source="seed 001, What we get for free",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:leaks:block",
        text="Under `block` a call with a found credential is refused or its result withheld.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:leaks:off",
        text="Under `off` nothing is scanned.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:output-schema",
        text=(
            "Results are checked against the tool's output schema at the bridge: warned about, "
            "refused or let be."
        ),
        source="seed 003, Security Considerations",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:redact:shape",
        text="Under `shape`, recorded arguments show their structure and no value.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:redact:full",
        text="Under `full`, nothing of the arguments is recorded but their digest.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:redact:keys",
        text="Under a list of keys, the values of those keys are replaced at any depth.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:redact:references",
        text="A value that came from a reference is replaced under every mode.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="hygiene:same-at-every-door",
        text="No door cleans on its own: the bridge has done it for all.",
        source="DESIGN.md 1, One bridge, many doors",
        state=Shown(),
    ),
)
