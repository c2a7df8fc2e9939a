"""What is tried takes and gives: writes with ``?dry_run=true``, and servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bascule.model.kinds import CLASSES, COLLECTIONS, KINDS
from bascule.wire.api.addresses import ADMIN
from bascule.wire.api.history import DryRun, RolledBack
from bascule.wire.api.imports import ImportText, ImportTrial
from bascule.wire.api.proposals import ProposalRefused
from bascule.wire.api.records import RecordRemoved
from bascule.wire.api.trials import Trial, TrialStep
from checks.openapi_routes import Body, Exchange, Schema, ref

Exchanges: TypeAlias = dict[tuple[str, str], Exchange]

#: What stands in answers that are one of several.
SHAPES: tuple[type[Struct], ...] = (
    *(DryRun, ImportText, ImportTrial, RecordRemoved, RolledBack, Trial, TrialStep),
)
_SERVERS = f"{ADMIN}/servers"
_STEPS: Schema = {
    "description": "the event step for each step as it ends, then the event result",
    "anyOf": [ref(TrialStep), ref(Trial)],
}
_AT_NODE: Mapping[str, Schema] = {
    "node": {
        "type": "string",
        "description": "the node to ask, by its name; else one that can answer",
    }
}
_DRAFT: Schema = {"anyOf": [ref(CLASSES["server"]), ref(ImportTrial)]}
_DRY_RUN: Mapping[str, Schema] = {
    "dry_run": {"type": "boolean", "description": "true: every check, the difference, no write"}
}


def with_writes(known: Exchanges) -> Exchanges:
    """Return the table with dry runs of every write of records, and trials of servers."""
    tried = {route: _on_trial(known[route]) for route in _writes()}
    return known | tried | _trials(known) | dict(_refused(known))


def _refused(known: Exchanges) -> Iterator[tuple[tuple[str, str], Exchange]]:
    """Describe the refusal of a proposal beside its acceptance."""
    for (method, path), accepted in known.items():
        if path.endswith("/{id}/accept"):
            query = {"proposal": accepted.query["proposal"]}
            refused = Exchange(
                answers={200: ProposalRefused}, refusals=accepted.refusals, query=query
            )
            yield (method, path.removesuffix("accept") + "refuse"), refused


def _trials(known: Exchanges) -> Exchanges:
    """Describe trials, which come in one piece or step by step, and what a node says of tools."""
    stored, drafted = ("POST", f"{_SERVERS}/{{id}}/test"), ("POST", f"{_SERVERS}/test")
    trial = replace(known[stored], also={"text/event-stream": _STEPS}, query=_AT_NODE)
    tools = "GET", f"{_SERVERS}/{{id}}/tools"
    refusals = (*known["POST", _SERVERS].refusals, "not_found", "no_node")
    draft = replace(trial, refusals=refusals, body=_DRAFT)
    shown = replace(known[tools], query=_AT_NODE)
    return {stored: trial, drafted: draft, tools: shown}


def _writes() -> Iterator[tuple[str, str]]:
    for kind in KINDS:
        many = f"{ADMIN}/{COLLECTIONS[kind]}"
        if kind != "platform":
            yield "POST", many
        one = many if kind == "platform" else f"{many}/{{id}}"
        yield from ((method, one) for method in ("PUT", "PATCH", "DELETE"))
    yield "POST", f"{ADMIN}/rollback"


def _on_trial(write: Exchange) -> Exchange:
    """Describe a write that may be a dry run, which is answered with 200."""
    done = write.answers.get(200)
    either: Body = DryRun if done is None else {"anyOf": [ref(done), ref(DryRun)]}
    answers = {**write.answers, 200: either}
    return replace(write, answers=answers, query={**write.query, **_DRY_RUN})
