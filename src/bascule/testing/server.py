"""Scripts for an MCP server that does exactly what a test needs, good or bad.

    server = ScriptedServer(behaviours={"echo": "echo", "boom": do("die", signal="KILL")})
    command, args = server.command

Each name under ``behaviours`` is a tool and what a call of it does; ``on`` does the same for
whole methods (``on={"server/discover": "die"}``), ``at_start`` before anything is read. A step is
the name of a kind, or ``do(kind, ...)`` with its parameters. Most kinds that do something on the
way take ``then``, the step that follows; the default is an echo.

Answers: ``echo`` (text), ``structured`` (value), ``fixed`` (result, bare), ``error`` (text),
``rpc_error`` (code, message, data), ``big`` (bytes, fill), ``env``, ``input_required`` (rounds,
requests), ``unknown_block``, ``unknown_fields``.

On the way: ``ledger`` (path), ``progress`` (count, without one for ever; worded), ``log`` (level,
count, data, on), ``gate`` (path or method), ``busy`` (seconds, in a process of its own), ``stderr``
(bytes or text), ``noise`` (text, times), ``flood`` (count, method, params), ``change_tools``
(tools, times), ``end_subscriptions``, ``spawn_grandchild`` (path, hold_pipes), ``server_request``
(method, params, on), ``sleep_until_cancelled`` (path; ``then`` is a late answer).

Choices: ``asked`` (does what the argument ``do`` says), ``once`` (path, first), ``turns`` (steps).

Faults: ``never``, ``die`` (code or signal), ``stop_reading``, ``close_output``, ``huge_line``
(bytes), ``no_newline`` (bytes), ``deep`` (depth), ``raw`` (frame), and the broken frames of
``bascule.testing.peer.faults.BROKEN``. ``ScriptedHttpServer`` serves the same scripts over HTTP
and knows the faults of ``bascule.testing.http_faults`` as well.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from bascule.model.json import JsonObject, is_array, is_object
from bascule.testing.peer.behaviours import BEHAVIOURS
from bascule.testing.peer.faults import FAULTS

Step = Mapping[str, object] | str
#: What only a server over HTTP can do (``http_faults``, which needs aiohttp).
OVER_HTTP = frozenset(
    {
        *("close_after", "comments", "gzip_bomb", "http", "redirect", "reset", "session_lost"),
        *("slow_body", "slow_head", "stream_ends"),
    }
)
KINDS = OVER_HTTP.union(BEHAVIOURS, FAULTS)
PROCESS_BODY = Path(__file__).with_name("stdio_server.py")
LONGEST_ARGUMENT = 100_000  # Linux takes 128 KiB in one argument


def do(kind: str, **parameters: object) -> dict[str, object]:
    """One step of a script: a kind of behaviour and its parameters."""
    step: dict[str, object] = {"kind": kind, **parameters}
    check_step(step)
    return step


def tool(name: str, /, **overrides: object) -> dict[str, Any]:
    """A well-formed tool that takes a text; ``overrides`` replace or add raw fields."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": f"The {name} tool.", "inputSchema": schema, **overrides}


MALFORMED_TOOLS: Mapping[str, object] = {
    "no_schema": {"name": "no_schema"},
    "null_schema": tool("null_schema", inputSchema=None),
    "schema_of_wrong_type": tool("schema_of_wrong_type", inputSchema={"type": "string"}),
    "schema_without_type": tool("schema_without_type", inputSchema={"properties": {}}),
    "type_list": tool("type_list", inputSchema={"type": ["object", "null"]}),
    "root_ref": tool("root_ref", inputSchema={"$ref": "#/$defs/a", "$defs": {"a": {}}}),
    "remote_ref": tool("remote_ref", inputSchema={"$ref": "http://127.0.0.1:9/schema"}),
    "schema_is_text": tool("schema_is_text", inputSchema="object"),
    "hint_is_text": tool("hint_is_text", annotations={"readOnlyHint": "yes"}),
    "output_schema_is_a_list": tool("output_schema_is_a_list", outputSchema=[1]),
    "description_is_a_number": tool("description_is_a_number", description=7),
    "no_name": {"inputSchema": {"type": "object"}},
    "name_is_a_number": tool("name_is_a_number", name=7),
    "not_an_object": "not an object",
}


def check_step(step: object) -> None:
    """Refuse a kind that does not exist here, not in a process that dies of it."""
    spec: JsonObject = step if is_object(step) else {"kind": str(step)}
    if spec.get("kind") not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise ValueError(f"no such behaviour: {spec.get('kind')!r}; known: {known}")
    steps = spec.get("steps")
    for inner in (spec.get("then"), spec.get("first"), *(steps if is_array(steps) else ())):
        if inner is not None:
            check_step(inner)


@dataclass(frozen=True, kw_only=True)
class ScriptedServer:
    """A script, and the command that starts a server living by it."""

    behaviours: Mapping[str, Step] = field(default_factory=lambda: {"echo": "echo"})
    tools: Sequence[object] | None = None  # absent: one well-formed tool per behaviour
    on: Mapping[str, Step] = field(default_factory=dict[str, Step])
    at_start: Sequence[Step] = ()
    era: Literal["modern", "legacy", "dual"] = "dual"
    version: str = "2025-11-25"  # what the handshake settles on
    name: str = "scripted"
    instructions: str | None = None
    capabilities: Mapping[str, object] | None = None  # absent: tools with listChanged
    page_size: int | None = None
    pagination: Literal["endless", "cycle"] | None = None
    ttl_ms: object = 0  # modern caching hints; None leaves one out
    cache_scope: object = "private"
    list_extra: Mapping[str, object] = field(
        default_factory=dict[str, object]
    )  # joins list results
    omit_result_type: bool = False
    noise: str | None = None  # a line before every frame
    ignore_sigterm: bool = False
    ignore_eof: bool = False
    ledger: str | Path | None = None  # where ``ledger`` writes when the step has no path
    journal: str | Path | None = None  # every message received, one line each
    starts: str | Path | None = None  # one line (the pid) per start of the process
    life_seconds: int = 600
    script_file: Path | None = None

    def __post_init__(self) -> None:
        for step in (*self.behaviours.values(), *self.on.values(), *self.at_start):
            check_step(step)

    @property
    def script(self) -> str:
        """The script as JSON, without a dollar sign: records give that one a meaning."""
        skipped = {"script_file", "tools"}
        kept_when_absent = {"ttl_ms", "cache_scope"}
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        script = {
            key: value
            for key, value in values.items()
            if key not in skipped and (value is not None or key in kept_when_absent)
        }
        script["tools"] = self.listed
        return json.dumps(script, default=plain).replace("$", "\\u0024")

    @property
    def listed(self) -> list[object]:
        """The raw tools this server lists at first."""
        return list(self.tools) if self.tools is not None else [tool(n) for n in self.behaviours]

    @property
    def command(self) -> tuple[str, list[str]]:
        """The executable and its arguments."""
        script = str(self.script_file) if self.script_file else self.script
        if len(script) > LONGEST_ARGUMENT:
            raise ValueError("the script is too long for an argument: use saved_to(path)")
        return sys.executable, ["-I", "-S", str(PROCESS_BODY), script]

    @property
    def stdio(self) -> dict[str, Any]:
        """The same, as the ``stdio`` part of a record."""
        executable, arguments = self.command
        return {"command": executable, "args": arguments}

    def saved_to(self, path: Path) -> ScriptedServer:
        """Put the script into a file: for a large one, or one that a later start reads anew."""
        path.write_text(self.script, encoding="utf-8")
        return replace(self, script_file=path)


def plain(value: object) -> object:
    """Paths as text; anything else that JSON cannot hold is a mistake in the test."""
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a script cannot hold {value!r}")
