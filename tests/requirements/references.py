"""References to variables, secrets and files, and when they are resolved."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="references:env:required",
        text="`${ENV:NAME}` stands for the variable NAME.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="references:env:default",
        text="`${ENV:NAME:-value}` stands for the variable, or the default when it is not set.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="references:env:missing-contributes-nothing",
        text=(
            "A server with an unresolved required reference contributes no tool and a warning "
            "that names the variable."
        ),
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="references:env:default-proceeds",
        text="A server whose missing variable has a default starts with the default.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="references:bare-name",
        text=(
            "A bare name in `auth_ref`, `auth.ref` or `key_ref` means `secret://name`; it is never "
            "sent itself."
        ),
        source="seed 000, Registry record",
        state=Shown(),
    ),
    Requirement(
        id="references:visible-credentials",
        text=(
            "A reference that looks like a credential in command, args or url is refused in "
            "records that come over the API."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:short-form",
        text="`${NAME}` is accepted in command, args, url, headers and env.",
        source="seed 001, Environment variable interpolation",
        state=Shown(),
    ),
    Requirement(
        id="references:connect-time",
        text=(
            "References are resolved at connect time, so a changed variable takes effect at "
            "the next connect."
        ),
        source="seed 001, Environment variable interpolation",
        state=Shown(),
    ),
    Requirement(
        id="references:http:connect-time",
        text="References in url and headers of a remote server are resolved at connect time.",
        source="seed 001, Environment variable interpolation",
        state=Shown(),
    ),
    Requirement(
        id="references:several-per-value",
        text="Several references may stand anywhere in one value, between literal text.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:dollar-escape",
        text="`$$` stands for one dollar.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:malformed",
        text="A reference that is not closed or has no name is refused with the path of its value.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:secret:whole-value",
        text="`secret://name` is a reference only as a whole value.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:secret:places",
        text="`secret://` and `file://` are refused in command, args and url.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:secret:resolve",
        text="`secret://name` is resolved on the node from the secret store at connect time.",
        source="DESIGN.md 4, References",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="references:secret:until-built",
        text="While there is no secret store, `secret://` fails that server with a clear message.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:file:whole-value",
        text="`file://path` is a reference only as a whole value.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:file:read",
        text="`file://path` gives the text of the file on the node, read at connect time.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:credential-warning",
        text=(
            "A variable whose name looks like a credential in command, args or url is a "
            "warning that says it would show in the process list."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:credential-strict",
        text="In strict mode a credential-like variable in command, args or url is an error.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:missing-fails-alone",
        text=(
            "A missing reference fails its own server, with a message that names it, and no "
            "other server."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:allowed-variables",
        text=(
            "A node refuses a reference to a variable outside its list and prints the setting "
            "to add."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:allowed-variables:up",
        text="Under `bascule up` records may read every variable.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:allowed-variables:node",
        text="Under `bascule node serve` records may read no variable unless listed.",
        source="DESIGN.md 4, References",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="references:allowed-variables:python",
        text="In the library records may read every variable.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="references:never-written",
        text=(
            "A value that came from a reference never appears in an event, log, error or "
            "ledger row."
        ),
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="references:literal-credential",
        text=(
            "What looks like a literal credential in command, args or url is reported with "
            "its path."
        ),
        source="seed 004, Environment Variables",
        state=Shown(),
    ),
)
