"""``bascule doctor``: is the process well? Is each server? What is wrong, and how to fix it.

No tool is called. A server's own words (its name, its last lines on standard error) are shown
through ``render_safe``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from bascule.cli.command import (
    ALLOW_EGRESS,
    REGISTRY_DIR,
    known_servers,
    nearest,
    run_async,
    scan_records,
    show,
    shown,
)
from bascule.cli.configuration import CONFIG, DATA_DIR, read_settings
from bascule.cli.parser import JSON, Parser, declared, many
from bascule.cli.process_checkup import process_doctor
from bascule.cli.progress import StatusLine
from bascule.cli.records import isolation_of
from bascule.cli.table import Colour, paint, render_table
from bascule.control.secret_keys import KEY_NAME, KeyFile
from bascule.errors import BasculeError, InvalidRecord, ServerUnavailable
from bascule.files.scan import Scan
from bascule.model.pattern import Pattern, PatternSet
from bascule.model.sandbox import Standing
from bascule.model.server import ServerRecord
from bascule.node.assembly import Bridge, ServerInspection
from bascule.node.executables import wide_entries
from bascule.outbound.rules import NodeRules
from bascule.policy.characters import render_safe
from bascule.policy.edits import secret_in

Verdict = Literal["ok", "failed", "disabled", "broken"]

_AT_ONCE = 8
_SAID = "; it said: "
_COLOURS: Mapping[Verdict, Colour] = {"ok": "green", "disabled": "dim"}
_LAUNCHERS = {
    "uvx": "uvx comes with uv (pip install uv)",
    "uv": "pip install uv",
    "npx": "npx comes with Node.js",
    "node": "install Node.js",
    "docker": "install Docker",
}
_EXAMPLES = """\
examples:
  bascule doctor                                  # the process, its disk and its ledger
  bascule doctor --registry-dir mcp.d             # the servers of these records
  bascule doctor --registry-dir mcp.d --server notes --json

Without --registry-dir it looks at the data directory and the process that serves it; it writes
nothing. With it each server is started, asked for its tools, and stopped; no tool is called. The
[node] rules of the settings apply, as in bascule up. A warning is not a failure.
Exit code 0: all is well; 1: something is not.
"""


class Checkup(Struct, frozen=True, kw_only=True):
    """What was found about one server; what was not reached is None."""

    server_id: str
    verdict: Verdict
    connect_ms: float | None = None
    list_ms: float | None = None
    era: str | None = None
    protocol_version: str | None = None
    server_name: str | None = None
    server_version: str | None = None
    tools: int | None = None
    allowed: int | None = None
    #: How a local server is isolated, if its record asks for that.
    sandbox: Standing | None = None
    quarantined: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    problem: str | None = None
    last_lines: tuple[str, ...] = ()
    mend: str | None = None


def fill(parser: Parser) -> None:
    """Add the options of ``doctor``."""
    only = many("--server", "ID", "look at this server only; may be repeated")
    options = (REGISTRY_DIR, only, ALLOW_EGRESS, DATA_DIR, CONFIG, JSON)
    declared(parser, doctor, *options, epilog=_EXAMPLES)


def doctor(arguments: argparse.Namespace) -> int:
    """Look at every server of some records, or at a data directory and its process."""
    if arguments.registry_dir is None:
        if arguments.server or arguments.allow_egress:
            arguments.usage("--server and --allow-egress are for servers of --registry-dir")
        return process_doctor(arguments)
    scan = scan_records(arguments.registry_dir)
    snapshot = scan.snapshot()
    chosen = known_servers(arguments, snapshot) or tuple(snapshot.servers)
    if not chosen and not scan.broken:
        raise InvalidRecord(["there is no server record to check"], source=arguments.registry_dir)
    settings = read_settings(arguments, without=("registry_dir",))
    rules = settings.rules()
    reaching = replace(rules, egress=(*rules.egress, *arguments.allow_egress))
    found = run_async(_examine_all(scan, chosen, reaching)) if chosen else []
    key = KeyFile(Path(settings.data_dir) / KEY_NAME).remark()
    remarks = [*_remarks_on(rules), *([] if key is None else [key])]
    checkups = found if arguments.server else [*found, *_broken_records(scan)]
    well = all(checkup.verdict in ("ok", "disabled") for checkup in checkups)
    plain = {"ok": well, "servers": checkups, "warnings": remarks}
    show(arguments, plain, *_texts(checkups), warnings=remarks)
    return 0 if well else 1


def _remarks_on(rules: NodeRules) -> list[str]:
    """Return what whoever runs this machine should know about its rules."""
    closed = rules.closed()
    return [*wide_entries(rules), *([] if closed is None else [closed])]


def _broken_records(scan: Scan) -> list[Checkup]:
    return [
        Checkup(
            server_id=broken.source,
            verdict="broken",
            problem="; ".join(broken.problems),
            mend="mend the record; the message names the field",
        )
        for broken in scan.broken
    ]


async def _examine_all(scan: Scan, chosen: Iterable[str], rules: NodeRules) -> list[Checkup]:
    """Look at servers side by side, a few at a time."""
    snapshot = scan.snapshot()
    places = asyncio.Semaphore(_AT_ONCE)
    line = StatusLine()
    open_now: list[str] = []

    async def one(server: str) -> Checkup:
        async with places:
            open_now.append(server)
            line.say(f"looking at {', '.join(open_now)}")
            try:
                warnings = _record_warnings(scan, server)
                return await examine(bridge, snapshot.servers[server], warnings)
            finally:
                open_now.remove(server)
                line.say(f"looking at {', '.join(open_now)}")

    async with (
        Bridge.open(snapshot, rules=rules) as bridge,
        line.waiting("looking at the servers"),
    ):
        return list(await asyncio.gather(*(one(server) for server in chosen)))


def _record_warnings(scan: Scan, server: str) -> tuple[str, ...]:
    """Return what the reader of the records said about this one."""
    prefix = f"{scan.records['server'][server].source}: "
    return tuple(w.removeprefix(prefix) for w in scan.warnings if w.startswith(prefix))


async def examine(bridge: Bridge, record: ServerRecord, warnings: tuple[str, ...] = ()) -> Checkup:
    """Look at one server."""
    if not record.enabled:
        return Checkup(server_id=record.server_id, verdict="disabled", warnings=warnings)
    try:
        found = await bridge.inspect(record.server_id)
    except BasculeError as error:
        reason = error.reason if isinstance(error, ServerUnavailable) else error.code
        message = bridge.presentable_text(str(error))
        return diagnose(record, reason, message, warnings)
    return _healthy(bridge, record, found, warnings)


def _healthy(
    bridge: Bridge, record: ServerRecord, found: ServerInspection, warnings: tuple[str, ...]
) -> Checkup:
    names = [tool.name for tool in found.listing.tools]
    allowed = PatternSet(record.allowed_tools)
    said = [bridge.presentable_text(warning) for warning in found.listing.warnings]
    unusable = [bridge.presentable_text(text) for text in found.listing.quarantined]
    return Checkup(
        server_id=record.server_id,
        verdict="ok",
        connect_ms=round(found.connect_ms, 1),
        list_ms=round(found.list_ms, 1),
        era=found.era,
        protocol_version=found.protocol_version,
        server_name=_word(bridge, found.server_info.get("name")),
        server_version=_word(bridge, found.server_info.get("version")),
        tools=len(names),
        allowed=sum(allowed.first(record.server_id, name) is not None for name in names),
        sandbox=_isolation(bridge, record.server_id),
        quarantined=tuple(unusable),
        warnings=(*warnings, *said, *pattern_warnings(record, names)),
    )


def _isolation(bridge: Bridge, server_id: str) -> Standing | None:
    own = (status for status in bridge.statuses() if status.server_id == server_id)
    return next((status.sandbox for status in own), None)


def _word(bridge: Bridge, value: object) -> str | None:
    return bridge.presentable_text(value)[:80] if isinstance(value, str) else None


def pattern_warnings(record: ServerRecord, names: list[str]) -> list[str]:
    """Say which entries of ``allowed_tools`` cover no tool, and what was probably meant."""
    if not record.allowed_tools:
        return ["allowed_tools is empty, so nothing may be called: list tools, or '*'"]
    return [
        f"allowed_tools: {text!r} matches no tool of this server{_meant(text, names)}"
        for text in record.allowed_tools
        if not any(Pattern.parse(text).matches(record.server_id, name) for name in names)
    ]


def _meant(text: str, names: list[str]) -> str:
    near = nearest(Pattern.parse(text).glob.replace("*", "").replace("?", ""), names)
    return f"; near: {', '.join(near)}" if near else ""


def diagnose(
    record: ServerRecord, reason: str, message: str, warnings: tuple[str, ...] = ()
) -> Checkup:
    """Word a failure: what is wrong, the server's last lines, and how to mend it."""
    problem, _, said = message.partition(_SAID)
    return Checkup(
        server_id=record.server_id,
        verdict="failed",
        reason=reason,
        problem=problem,
        last_lines=tuple(said.splitlines()),
        mend=_mend(record, reason, problem),
        warnings=warnings,
    )


def _mend(record: ServerRecord, reason: str, problem: str) -> str | None:
    """Return what to do about a failure, by its stable reason first and its words after that."""
    if reason == "env_missing":
        return _mend_reference(record, problem)
    if reason == "secret_unbound":
        what = f"{secret_in(problem) or 'NAME'} --server {record.server_id}"
        return f"an administrator binds it: bascule secrets bind {what}"
    if reason == "launch_denied":
        return "this machine's rules forbid it; the message names the setting to change"
    if reason == "list_timeout":
        return f"raise budgets.list_timeout_ms (now {record.budgets.list_timeout_ms})"
    return _mend_start(record, problem)


def _mend_start(record: ServerRecord, problem: str) -> str | None:
    if problem.startswith("no connection within"):
        return (
            f"raise budgets.connect_timeout_ms (now {record.budgets.connect_timeout_ms}); the "
            "first start of a server that is downloaded takes longest"
        )
    if problem.startswith(("command not found", "permission denied")):
        return _mend_command(record, problem)
    if problem.startswith("working directory"):
        return "create it, or correct stdio.cwd"
    stdio = record.stdio
    if stdio is None:
        return None
    return f"run it by hand to see all it says: {shlex.join((stdio.command, *stdio.args))}"


def _mend_reference(record: ServerRecord, problem: str) -> str:
    secret = secret_in(problem)
    if secret is not None and problem.endswith("has no secret store"):
        return f"test it where the secrets are: bascule servers test {record.server_id}"
    if secret is not None:
        return f"set it, and bind it: bascule secrets set {secret} --bind {record.server_id}"
    variable = re.search(r"the variable (\w+) is not set", problem)
    if variable is None:
        return "provide what the reference names, or change the record"
    return f"export {variable[1]}=… before starting, or give the reference a default"


def _mend_command(record: ServerRecord, problem: str) -> str:
    if problem.startswith("permission denied"):
        return "make it executable (chmod +x), or name another program in stdio.command"
    advice = "install it, or write its full path in stdio.command"
    launcher = _LAUNCHERS.get(record.stdio.command) if record.stdio is not None else None
    where = "" if "PATH searched" in problem else f"; PATH is {os.environ.get('PATH', '')!r}"
    return f"{launcher}; otherwise {advice}{where}" if launcher else f"{advice}{where}"


_HEADER = ("server", "verdict", "connect", "list", "protocol", "name", "tools", "allowed")


def _texts(checkups: list[Checkup]) -> Iterable[str]:
    yield render_table(_HEADER, [_row(checkup) for checkup in checkups])
    for checkup in checkups:
        lines = list(_remarks(checkup))
        if lines:
            yield f"\n{paint(shown(checkup.server_id), 'bold')}"
            yield "\n".join(f"  {line}" for line in lines)


def _row(checkup: Checkup) -> list[str]:
    name = " ".join(filter(None, (checkup.server_name, checkup.server_version)))
    protocol = " ".join(filter(None, (checkup.protocol_version, checkup.era)))
    return [
        shown(checkup.server_id),
        paint(checkup.verdict, _COLOURS.get(checkup.verdict, "red")),
        _number(checkup.connect_ms, " ms"),
        _number(checkup.list_ms, " ms"),
        shown(protocol) or "-",
        shown(name) or "-",
        _number(checkup.tools),
        _number(checkup.allowed),
    ]


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _remarks(checkup: Checkup) -> Iterable[str]:
    if checkup.problem is not None:
        reason = f"{checkup.reason}: " if checkup.reason else ""
        yield paint(f"problem: {reason}{shown(checkup.problem)}", "red")
    for line in checkup.last_lines:
        yield f"  said: {render_safe(line, one_line=True)}"
    if checkup.mend is not None:
        yield f"mend:    {render_safe(checkup.mend, one_line=True)}"
    for text in isolation_of({"sandbox": to_builtins(checkup.sandbox)}):
        yield shown(text)
    for text in checkup.quarantined:
        yield paint(f"quarantined: {shown(text)}", "yellow")
    for text in checkup.warnings:
        yield paint(f"warning: {shown(text)}", "yellow")
