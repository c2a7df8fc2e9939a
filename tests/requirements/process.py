"""Server processes: their environment, and that none is left behind."""

from tests.requirements.model import NotPlanned, Requirement, Shown

ENTRIES = (
    Requirement(
        id="process:environment-empty",
        text="A server's environment is built from empty plus PATH and what its record gives.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:private-home",
        text=(
            "A server gets a private HOME and TMPDIR; the TMPDIR, and a HOME that is not kept, are "
            "gone when it ends."
        ),
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:home:kept",
        text="A HOME is kept for a server id and launch, and no other server or launch has it.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:home:offline",
        text=(
            "What uv or npm fetched is started from its HOME without the network for a day, and "
            "is fetched anew when that fails; later the network is asked first, and done without "
            "when that fails."
        ),
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:home:temporary",
        text="A HOME is temporary for a session's own server and where the record says so.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:home:private",
        text="A kept HOME is its owner's alone, and is never reached along a link.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:home:shared",
        text="A kept HOME may be in use by several processes, and is not removed meanwhile.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:home:limits",
        text="Kept HOMEs have a limit of age and of size, and go beyond it at the start.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:environment:outward",
        text=(
            "A server gets the node's certificates and proxies unless the rules say no, and "
            "credentials in them are masked."
        ),
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:sigkill-node",
        text="No server process survives the node being killed with SIGKILL.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:sigkill-node:grandchild",
        text="No detached grandchild survives the node being killed with SIGKILL.",
        source="DESIGN.md 4, Processes",
        state=Shown(),
    ),
    Requirement(
        id="process:killed-on-disconnect",
        text="A server's process is gone when it is disconnected.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
    Requirement(
        id="process:deterministic-close",
        text=(
            "Closing a connection ends process, pipes and temporary directories before it returns."
        ),
        source="seed 004, Guiding Principles",
        state=Shown(),
    ),
    Requirement(
        id="process:idle-reaping",
        text=(
            "A server process idle for longer than the limit is ended and started again on demand."
        ),
        source="seed 000, Concurrency, budgets, and resource control",
        state=Shown(),
    ),
    Requirement(
        id="process:cwd",
        text="A server starts in its `cwd`.",
        source="seed 004, Subprocess Sandbox",
        state=Shown(),
    ),
    Requirement(
        id="process:network-policy",
        text="A stdio server's network egress is limited to given domains.",
        source="seed 004, Subprocess Sandbox",
        state=NotPlanned(
            "no sandbox exists in this release; a section refuses an isolation that asks "
            "for it, with a message"
        ),
    ),
    Requirement(
        id="process:sandbox",
        text="A stdio server runs in a sandbox.",
        source="seed 004, Subprocess Sandbox",
        state=NotPlanned(
            "no sandbox exists in this release; a section refuses an isolation that asks "
            "for it, with a message"
        ),
    ),
    Requirement(
        id="process:ignores-sigterm",
        text="A server that ignores SIGTERM is gone within a second of closing.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
    Requirement(
        id="process:leftovers",
        text="Temporary folders of a killed process are swept by the next start.",
        source="seed 001, Lifecycle rules",
        state=Shown(),
    ),
)
