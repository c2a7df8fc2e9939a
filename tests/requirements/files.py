"""A directory or a file of records: what is read, ignored and reported."""

from tests.requirements.model import NotPlanned, Requirement, Shown

ENTRIES = (
    Requirement(
        id="files:suffixes",
        text="Only `*.toml` and `*.json` files of the directory are read.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:non-recursive",
        text="Sub-directories are not searched for server records.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:hidden",
        text="Files whose name begins with a dot are ignored.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:temporary",
        text="Editor leftovers (a `~` suffix, swap files) are ignored.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:links-outside",
        text="A link that leads out of the directory is not followed, and a warning names it.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:one-record-per-file",
        text="One file holds one record, keyed by its `server_id`.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:version",
        text="`version = 1` in a file is part of its schema and not an unknown field.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:env-from",
        text='`env_from = ["API_TOKEN"]` means `env.API_TOKEN = "${ENV:API_TOKEN}"`.',
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:env-from:explicit-wins",
        text="An explicit `env` entry stands against an `env_from` entry of the same name.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:duplicate-id",
        text=(
            "When two files define one `server_id`, the lexicographically last file wins and "
            "a warning names both files."
        ),
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:duplicate-id:strict",
        text="In strict mode two files with one `server_id` are an error.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:strict:validation",
        text="In strict mode a record that fails validation is an error and nothing is loaded.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:unknown-fields",
        text="An unknown field in a file is an error of that record, with file and path.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:broken-file:reported",
        text="A file that cannot be parsed is reported with its name and line.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:broken-file:hides-nothing",
        text="A broken file does not hide the other records of the directory.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:examples",
        text="The shipped examples `fs.toml` and `gitlab.toml` load without a warning.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=Shown(),
    ),
    Requirement(
        id="files:many-records",
        text="One file may hold many records.",
        source="seed 000, SMS config (registry file)",
        state=Shown(),
    ),
    Requirement(
        id="files:links-asked-for",
        text="A link that leads out of the directory is followed when a setting asks for it.",
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
    Requirement(
        id="files:links-inside",
        text="A link within the directory is followed, so that a mounted ConfigMap works.",
        source="seed 000, SMS config (registry file)",
        state=Shown(),
    ),
    Requirement(
        id="files:profiles",
        text="Profiles are read from `profiles/` beside the server records.",
        source="seed 002, Phase B: Profiles/Bundles and server tags",
        state=Shown(),
    ),
    Requirement(
        id="files:tasks",
        text="Tasks are read from `tasks/` beside the server records.",
        source="seed 002, Phase A: encode task-level subset policy in Task.config",
        state=Shown(),
    ),
    Requirement(
        id="files:recursion",
        text="Server records in sub-directories are read when asked for.",
        source="seed 000, Loading MCP server configs from a configurable directory",
        state=NotPlanned(
            "the seed calls recursion optional; `tasks/` and `profiles/` are the only "
            "folders read, so that a record cannot hide in a deep tree"
        ),
    ),
)
