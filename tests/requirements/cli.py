"""The command line."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="cli:changed",
        text="A command says `changed` only when the registry's revision moved.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:policy-explain",
        text="`bascule policy explain` tells which servers and tools are effective and why.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:policy-explain:json",
        text="`bascule policy explain --json` prints the documented object.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:policy-explain:refused",
        text="A refused session exits 10 with the reason.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:policy-explain:bad-input",
        text="Input that cannot be read exits with an error that names file and path.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:tools",
        text="`bascule tools list`, `call` and `explain` work on a directory of records.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:doctor",
        text=(
            "`bascule doctor` starts each server, times it and says what is wrong and how to "
            "mend it."
        ),
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:doctor:urls",
        text="`bascule doctor` and `tools` work with remote servers.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:up",
        text="`bascule up` serves registry and node, and ends cleanly on Ctrl-C and SIGTERM.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:servers",
        text="`bascule servers …` does what the registry's API does.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:tasks-profiles",
        text="`bascule tasks …` and `bascule profiles …` manage those kinds.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:tokens",
        text="`bascule tokens create` makes a token for a role.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:json",
        text="`--json` works on every command.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:approvals",
        text="`bascule approvals …` lists and decides.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="cli:audit",
        text="`bascule audit …` searches and verifies the ledger.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="cli:secrets",
        text="`bascule secrets …` manages secrets without printing them.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="cli:agents",
        text="`bascule agents …` manages agents' servers.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:registry-serve",
        text="`bascule registry serve` runs the control plane alone.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="cli:node-serve",
        text="`bascule node serve` runs a node alone.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="cli:preflight",
        text="`bascule preflight` checks a machine before it serves.",
        source="DESIGN.md 5, Surfaces",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="cli:registry:crud",
        text="Servers can be registered, updated, deleted and listed from the command line.",
        source="seed 000, Registry operations",
        state=Shown(),
    ),
    Requirement(
        id="cli:next-command",
        text=(
            "Adding a server, importing one and a denial name the next command, which can be "
            "typed as printed."
        ),
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:servers:allow",
        text="`bascule servers allow` and `deny` change one pattern; what is denied is denied.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:tasks:use",
        text="`bascule tasks use` and `drop` change one server of a task.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:tasks:default",
        text="A default task serves commands that name none.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:short-help",
        text="`bascule` alone prints a short help.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:misspelt",
        text="A command, option or id that is misspelt is named with what was probably meant.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:tables",
        text="Tables break paths and addresses before plain words to fit the terminal.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:demo-task",
        text="The demo's task is made once in the registry; it can be edited and removed.",
        source="DESIGN.md 5, Surfaces",
        state=Shown(),
    ),
    Requirement(
        id="cli:servers:clean",
        text="`bascule servers clean` removes what servers kept and leaves what is in use.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
)
