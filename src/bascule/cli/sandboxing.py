"""The sandbox of a server that is added: what a command line says of it, and a trial inside.

Before a record is written a node starts its server as it would be started then. One that works
without the sandbox and not inside is the person's to decide on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bascule.cli.command import shown
from bascule.cli.command_line import typed
from bascule.cli.missed_grants import granting_words, missed_words, with_missed
from bascule.cli.parser import Option, many, option, switch
from bascule.cli.progress import StatusLine
from bascule.cli.terminal import YES, answer_to, somebody_is_there
from bascule.client.http import ApiError
from bascule.client.registry import RegistryClient
from bascule.control.registry.imports import read_client_config
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.launcher import launcher_place
from bascule.model.sandbox import NETWORKS, OWN_CWD
from bascule.model.server import SHARINGS
from bascule.wire.api.trials import Trial
from bascule.wire.new_servers import KEEP_NO_FILES, granting, new_server, ungranted_places
from bascule.wire.sandbox_rules import SANDBOX_WORDS, sandbox_of

SANDBOX_OPTIONS: tuple[Option, ...] = (
    option("--sandbox", "LEVEL", f"its isolation (best): {', '.join(SANDBOX_WORDS)}"),
    many("--read", "PATH", "a file or folder it may read; repeatable", dest="readable"),
    many("--write", "PATH", "a folder it may write to; repeatable", dest="writable"),
    option("--network", None, "its network (full)", choices=[*reversed(NETWORKS)]),
    # Not "host", which is a setting.
    many(
        "--host", "NAME[:PORT]", "a host it may reach, and no other; repeatable", dest="reachable"
    ),
    option("--sharing", None, "who shares a process of it (task)", choices=SHARINGS),
)
YES_OPTION = switch("--yes", "grant the folders that its arguments name, without asking")
NO_TRIAL = switch("--no-trial", "do not start it before it is written")
_LIMITS: JsonObject = {"level": "limits"}
#: What the write is refused for as well.
_TOLD_AGAIN = ("forbidden", "unauthorized", "invalid_record")


def with_sandbox(arguments: argparse.Namespace, record: JsonObject) -> dict[str, JsonValue]:
    """Return the record of a new server with what the command line says of its isolation."""
    sharing: JsonObject = {} if arguments.sharing is None else {"sharing": arguments.sharing}
    table = _table(arguments)
    if record.get("transport") != "stdio":
        if table is not None:
            arguments.usage("--sandbox, --read, --write, --network and --host go with a command")
        return new_server({**record, **sharing})
    own: JsonObject = {} if table is None else {"sandbox": table}
    return new_server({**record, **sharing, **own})


def _table(arguments: argparse.Namespace) -> JsonObject | None:
    word: str | None = arguments.sandbox
    base = None if word is None else sandbox_of(word)
    if word is not None and base is None:
        arguments.usage(f"--sandbox: {word!r} is not one of: {', '.join(SANDBOX_WORDS)}")
    table: dict[str, JsonValue] = {}
    if base is not None:
        table = {"level": base.level, "required": base.required, "network": base.network}
        table["write"] = [*base.write]
    if arguments.readable:
        table["read"] = [*arguments.readable]
    if arguments.writable:
        before = [OWN_CWD] if base is None else base.write
        table["write"] = [*before, *arguments.writable]
    network = arguments.network or ("egress" if arguments.reachable else None)
    if network is not None:
        table["network"] = network
    if arguments.reachable:
        table["hosts"] = [*arguments.reachable]
    return table or None


async def fitted(
    registry: RegistryClient, record: JsonObject, arguments: argparse.Namespace
) -> dict[str, JsonValue]:
    """Return the record to write: with folders that are granted, and tried inside its sandbox."""
    if _level(record) in KEEP_NO_FILES:
        return {**record}
    given = {**record}
    if places := _ungranted(record):
        given = await _offered(given, places, arguments)
    if arguments.no_trial:
        return given
    return await _tried(registry, given, arguments)


async def fitted_all(
    registry: RegistryClient, content: JsonObject, arguments: argparse.Namespace
) -> list[dict[str, JsonValue]]:
    """Return the servers of a client's file that get another sandbox than new ones have.

    Those that exist keep theirs; of one that is wrong the import says so.
    """
    try:
        records = [record for _, record in read_client_config(content).records]
    except InvalidRecord:
        return []
    known = {one.get("server_id") for one in (await registry.list("server")).items}
    fresh = [record for record in records if record.get("server_id") not in known]
    found = [await fitted(registry, record, arguments) for record in fresh]
    pairs = zip(found, fresh, strict=True)
    return [one for one, before in pairs if one.get("sandbox") != before.get("sandbox")]


def _level(record: JsonObject) -> str:
    table = record.get("sandbox")
    return str(table.get("level", "best")) if is_object(table) else "none"


def _ungranted(record: JsonObject) -> list[str]:
    """Return the folders of this machine that the arguments name and the sandbox does not grant."""
    return [place for place in ungranted_places(record) if Path(place).expanduser().is_dir()]


async def _offered(
    record: JsonObject, places: Sequence[str], arguments: argparse.Namespace
) -> dict[str, JsonValue]:
    """Ask whether a server may write to the folders that it was told of."""
    listed = ", ".join(map(shown, places))
    if arguments.yes:
        _say(f"granted, as its arguments name it: {listed} (sandbox.write)")
        return granting(record, places)
    if somebody_is_there():
        answer = await answer_to(f"its arguments name {listed}; may it read and write there? [y/N]")
        return granting(record, places) if answer in YES else {**record}
    more = " ".join(f"--write {place}" for place in places)
    _say(f"its arguments name {listed}, which its sandbox does not grant: give {shown(more)}")
    return {**record}


async def _tried(
    registry: RegistryClient, record: JsonObject, arguments: argparse.Namespace
) -> dict[str, JsonValue]:
    name = shown(str(record.get("server_id")))
    try:
        async with StatusLine().waiting(f"trying {name} inside its sandbox{_fetching(record)}"):
            outside = inside = await registry.test_draft(record)
            if not inside.ok and not _unfetched(inside):
                outside = await registry.test_draft({**record, "sandbox": _LIMITS})
    except BasculeError as error:
        if isinstance(error, ApiError) and error.code in _TOLD_AGAIN:
            return {**record}
        _say(f"{name} was not tried inside its sandbox: {shown(str(error))}")
        return {**record}
    if inside.ok:
        return {**record}
    if not outside.ok:  # the sandbox is not at fault: it is written as it is, and may yet be mended
        _say(f"{name} does not list its tools: {shown(str(outside.error))}")
        for line in missed_words(inside.missed):
            _say(f"  {shown(line)}")
        return {**record}
    return await _decided(registry, record, inside, outside, arguments)


async def _decided(
    registry: RegistryClient,
    record: JsonObject,
    inside: Trial,
    outside: Trial,
    arguments: argparse.Namespace,
) -> dict[str, JsonValue]:
    """Have a person decide about a server that works outside of its sandbox and not inside."""
    name = shown(str(record.get("server_id")))
    for line in (*_told(name, inside), f"with level limits it lists {outside.tool_count}"):
        _say(line)
    wider = with_missed(record, inside.missed)
    if somebody_is_there():
        if wider is not None and await answer_to("grant it that, and try again? [y/N]") in YES:
            return await _tried(registry, wider, arguments)
        answer = await answer_to('write sandbox.level = "limits" instead? [y/N]')
        return {**record, "sandbox": _LIMITS} if answer in YES else {**record}
    if wider is not None:
        words = granting_words(record, wider)
        _say(f"to grant that: {typed(f'servers set {name} {words}', arguments)}")
    looser = typed(f"servers set {name} sandbox=limits", arguments)
    _say(f"to let it have what it misses: a wider sandbox, or none of it: {looser}")
    return {**record}


def _fetching(record: JsonObject) -> str:
    """Say why a trial may take a while, where it may."""
    stdio = record.get("stdio")
    if not is_object(stdio):
        return ""
    args = stdio.get("args")
    words = [stdio.get("command"), *(args if is_array(args) else ())]
    return "" if launcher_place([str(word) for word in words]) is None else ", once it is fetched"


def _unfetched(trial: Trial) -> bool:
    """Say whether a server was not even fetched: nothing of it ran, nor should it outside."""
    return bool(trial.steps) and trial.steps[-1].step == "fetch"


def _told(name: str, inside: Trial) -> list[str]:
    return [
        f"{name} does not list its tools inside its sandbox: {shown(str(inside.error))}",
        *(f"  stderr: {shown(line)}" for line in inside.stderr),
        *(f"  {shown(line)}" for line in missed_words(inside.missed)),
    ]


def _say(line: str) -> None:
    print(line, file=sys.stderr)
