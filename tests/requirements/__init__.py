"""The manifest of required behaviours: the contents list of the whole product.

One data module per area; an entry's id begins with the name of its module. Above: the
manifest's own test, the page in ``docs/`` and whoever asks what is left to do. Below: the
types in ``model``. The tests that show a behaviour carry its id
(``@pytest.mark.requirement("area:feature:variant")``).
"""

from dataclasses import dataclass

from tests.requirements import (
    admin,
    approval,
    audit,
    bridge,
    budgets,
    call,
    catalogue,
    chat,
    cli,
    executor,
    files,
    gateway,
    hostcalls,
    hygiene,
    loading,
    manager,
    names,
    observability,
    outcomes,
    policy,
    pool,
    process,
    record,
    references,
    registry,
    section,
    security,
    sync,
    task,
    transport,
    wire,
)
from tests.requirements.model import Requirement


@dataclass(frozen=True, slots=True)
class Area:
    """The behaviours of one part of the product."""

    name: str
    title: str
    entries: tuple[Requirement, ...]


AREAS = (
    Area("record", "The server record: its fields, its validator and its forms.", record.ENTRIES),
    Area(
        "references",
        "References to variables, secrets and files, and when they are resolved.",
        references.ENTRIES,
    ),
    Area(
        "files",
        "A directory or a file of records: what is read, ignored and reported.",
        files.ENTRIES,
    ),
    Area(
        "task",
        "Tasks and profiles: defaults, ceilings and filters that a task carries.",
        task.ENTRIES,
    ),
    Area(
        "policy",
        "Composition of platform, task and session into what a session may use.",
        policy.ENTRIES,
    ),
    Area("names", "Model-facing tool names and the table behind them.", names.ENTRIES),
    Area(
        "approval",
        "Approval: the verdict for a call, and how a grant is obtained, kept and used.",
        approval.ENTRIES,
    ),
    Area("budgets", "Budgets of sessions, servers and nodes.", budgets.ENTRIES),
    Area(
        "outcomes",
        "What a call gives back: outcomes, error codes and cut output.",
        outcomes.ENTRIES,
    ),
    Area(
        "hygiene",
        "Cleaning of what passes: control characters, leaks and redaction.",
        hygiene.ENTRIES,
    ),
    Area(
        "call",
        "The path of a call: order of its steps, at most once, and that everything ends.",
        call.ENTRIES,
    ),
    Area("wire", "JSON-RPC frames and strict JSON.", wire.ENTRIES),
    Area(
        "transport",
        "Transports to MCP servers: stdio, streamable HTTP and legacy SSE.",
        transport.ENTRIES,
    ),
    Area(
        "process",
        "Server processes: their environment, and that none is left behind.",
        process.ENTRIES,
    ),
    Area("pool", "The pool of connections: states, reconnects and health.", pool.ENTRIES),
    Area("catalogue", "What a server offers: tools/list, cached and refreshed.", catalogue.ENTRIES),
    Area("bridge", "The library: bridge, sessions, tool sets and outcomes.", bridge.ENTRIES),
    Area("audit", "Events, the audit trail and the ledger.", audit.ENTRIES),
    Area("observability", "Metrics and health.", observability.ENTRIES),
    Area(
        "registry",
        "The control plane's store: revisions, watch, status and history.",
        registry.ENTRIES,
    ),
    Area("loading", "Loading records from files into the control plane.", loading.ENTRIES),
    Area(
        "sync", "How a node follows the registry, and what it serves when it cannot.", sync.ENTRIES
    ),
    Area("admin", "HTTP faces of the registry and the web admin.", admin.ENTRIES),
    Area(
        "security",
        "Who may do what: tokens, roles, secrets and the committed limits.",
        security.ENTRIES,
    ),
    Area("chat", "The chat door and its loop.", chat.ENTRIES),
    Area("hostcalls", "Hostcalls for WASM guests.", hostcalls.ENTRIES),
    Area("section", "The Python section.", section.ENTRIES),
    Area("manager", "The per-agent manager.", manager.ENTRIES),
    Area("executor", "The executor for agent loops.", executor.ENTRIES),
    Area("cli", "The command line.", cli.ENTRIES),
    Area("gateway", "What is left for a gateway, and what the seeds leave out.", gateway.ENTRIES),
)

ALL = tuple(entry for area in AREAS for entry in area.entries)


def module_of(entry_id: str) -> str:
    """Give the data module an entry lives in, relative to the root of the repository."""
    return f"tests/requirements/{entry_id.partition(':')[0]}.py"
