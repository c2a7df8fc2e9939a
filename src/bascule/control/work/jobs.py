"""What nodes are asked to do and what they answer, as it is kept in rows: JSON."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from bascule.model.json import JsonObject
from bascule.wire.api.trials import ToolPreview, Trial, TrialStep

#: The code of what was not done at all; any other is why a server has no tools to show.
NOT_DONE = "no_node"


class ServerTrial(Struct, frozen=True, tag="test"):
    """Connect to a server of the registry and list its tools."""

    server_id: str


class DraftTrial(Struct, frozen=True, tag="try_out"):
    """Do the same with a record that is not in the registry; ``record`` has its plain values."""

    record: JsonObject


class Preview(Struct, frozen=True, tag="preview"):
    """Say of every tool of a server what is decided about it."""

    server_id: str


Job: TypeAlias = ServerTrial | DraftTrial | Preview


class Stepped(Struct, frozen=True, tag="step"):
    """One step of a trial has ended; the trial goes on."""

    step: TrialStep


class Tried(Struct, frozen=True, tag="trial"):
    """A trial has ended, well or not; ``definitions`` are the tools, as the server lists them."""

    trial: Trial
    definitions: tuple[JsonObject, ...] = ()


class Previewed(Struct, frozen=True, tag="previews"):
    """Every tool with the decision about it."""

    tools: tuple[ToolPreview, ...]
    definitions: tuple[JsonObject, ...] = ()


class Undone(Struct, frozen=True, tag="failure"):
    """Work was not done: ``code`` is ``NOT_DONE``, or the reason why a server does not serve."""

    code: str
    message: str


Answer: TypeAlias = Stepped | Tried | Previewed | Undone

_jobs: msgspec.json.Decoder[Job] = msgspec.json.Decoder(Job)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def job_of(body: bytes) -> Job:
    """Return a job from its row."""
    return _jobs.decode(body)


def answer_of(body: bytes) -> Answer:
    """Return an answer from its row."""
    return _answers.decode(body)


def body_of(said: Job | Answer) -> bytes:
    """Return a job or an answer as a row has it."""
    return msgspec.json.encode(said)


def is_last(answer: Answer) -> bool:
    """Say whether no other answer follows one."""
    return not isinstance(answer, Stepped)
