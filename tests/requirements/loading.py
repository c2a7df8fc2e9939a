"""Loading records from files into the control plane."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="loading:directory:startup",
        text="At start the records of the directory are upserted into the registry.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:directory:flag",
        text="The directory is named by `--registry-dir`.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:directory:environment",
        text="The directory is named by `BASCULE_REGISTRY_DIR`.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:directory:config",
        text="The directory is named by `mcp.registry_dir` in `bascule.toml`.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:reload:sighup",
        text="SIGHUP rescans the directory.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:reload:periodic",
        text="A periodic rescan finds changes.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:reload:command",
        text="A rescan can be asked for by command line and API.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:reload:one-revision",
        text=(
            "A reload that changes something is one revision, and one that changes nothing is none."
        ),
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="loading:reload:unchanged",
        text="A rescan reads the files that changed and writes their records; of none, nothing.",
        source="DESIGN.md 4, Registry",
        state=Shown(),
    ),
    Requirement(
        id="loading:upsert",
        text="A record of a file replaces the stored record of the same id that the file owns.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:dry-run",
        text="`--dry-run` validates, shows the difference and changes nothing.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:strict",
        text="`--strict` refuses to start on unknown fields, invalid records and duplicates.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:nodes-read-no-files",
        text="A node of a registry reads no records from disk but its own snapshot.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Deferred(Work.SCALE_OUT),
    ),
    Requirement(
        id="loading:broken-keeps-good",
        text="A file that became broken does not remove the record it defined before.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="loading:file",
        text="`--registry-file` loads one file of many records at start.",
        source="seed 000, SMS config (registry file)",
        state=Shown(),
    ),
    Requirement(
        id="loading:removed-file",
        text="Removing a file deletes what it owns and nothing else.",
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
    Requirement(
        id="loading:file-owned",
        text="A record owned by a file is read-only elsewhere until adopted.",
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
)
