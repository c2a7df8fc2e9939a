"""``bascule up``: read the settings, say where the process serves, and heed its signals.

``bascule.app.up`` joins the parts, ``bascule.app.dry_run`` tries the files alone. The demo's server
is written to the data directory at every start, its task is made once.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from bascule.app.data_dir import DEMO_FOLDER
from bascule.app.dry_run import dry_run
from bascule.app.hardening import harden
from bascule.app.settings import Settings
from bascule.app.stores import Demo
from bascule.app.up import up
from bascule.cli.command import ALLOW_EGRESS, run_async, show, warn
from bascule.cli.configuration import WORKERS, read_settings
from bascule.cli.failures import complain
from bascule.cli.parser import ENVIRONMENT, Parser, declared, many, option, switch
from bascule.cli.secrets import given_key
from bascule.cli.serving import SERVING, announced_to, not_served, orders_of_signals, say_ended
from bascule.control.envelope import OuterKey
from bascule.demo.copies import write_records
from bascule.errors import BasculeError
from bascule.model.task import TaskPolicy, TaskRecord

_EPILOG = """\
On a terminal each start prints a link to the admin page, which opens it once, within ten minutes;
bascule web makes another. The first start creates an administrator token and writes it to a private
file in the data directory; it is valid until you create your own administrator token. Records are
loaded again when their files change, and on SIGHUP. After Ctrl-C or SIGTERM the process waits for
running calls, at most ten seconds, and exits; a second signal stops it at once.

  bascule up
  bascule up --registry-dir mcp.d --empty --port 0
  bascule up --registry-dir mcp.d --dry-run

With --json each announcement is one line of JSON on standard output: {"event": "serving", "url",
"mcp_url", "page_url", "setup_token", "setup_file"}, {"event": "problems", "problems"}, {"event":
"ended"}; a start that fails prints {"error"}, and a dry run prints one document.
"""
#: Commands for whoever is new, some with a note.
_WITH_DEMO = {
    "servers list": "",
    "tokens create --role client --task demo": "a token, and how to connect an MCP client with it",
    "tools list": "",
    "chat 'call notes.list_notes with {}'": "",
    """chat 'call notes.delete_note with {"name": "shopping"}'""": "waits until it is approved",
    "approvals watch": "in one more terminal: shows what is asked, and asks you",
}
_WITHOUT_DEMO = {"servers add time --allow '*' -- uvx mcp-server-time": "", "servers list": ""}
_DEMO_TASK = TaskRecord(
    task_id="demo",
    name="Demo",
    mcp=TaskPolicy(enabled=True, default_server_ids=("notes",)),
)


_OPTIONS = (
    *SERVING,
    many(
        "--backend",
        "NAME=BASE_URL",
        "a server that answers for models; may be repeated",
        default=None,
    ),
    option("--agents", "FILE", "a file of agents with their own servers, connected too"),
    ENVIRONMENT,
    ALLOW_EGRESS,
    WORKERS,
    switch("--empty", "leave out the bundled demo records"),
    switch("--dry-run", "print what the records would change, and exit"),
)


def fill(parser: Parser) -> None:
    """Add the options of ``up``."""
    declared(parser, serve, *_OPTIONS, epilog=_EPILOG)


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes, or try the records."""
    if not arguments.dry_run:
        harden()  # before anything that is secret is read
    try:
        settings = _with_egress(read_settings(arguments), arguments.allow_egress)
        key = given_key(arguments)  # before the event loop opens descriptors of its own
        if arguments.dry_run:
            return run_async(_try(settings, arguments))
        run_async(_serve(settings, arguments, key))
    except (BasculeError, OSError) as error:
        return not_served(error, as_json=arguments.json)
    return 0


def _with_egress(settings: Settings, hosts: Sequence[str]) -> Settings:
    """Return settings with further hosts besides those of the file and the environment."""
    node = replace(settings.node, egress=(*settings.node.egress, *hosts))
    return replace(settings, node=node)


async def _try(settings: Settings, arguments: argparse.Namespace) -> int:
    """Say what loading the records would change; 1 if something of them cannot be used."""
    if settings.mcp.registry_dir is None and settings.mcp.registry_file is None:
        warn(["there is nothing to load: give --registry-dir or --registry-file"])
    written = await dry_run(settings, new_registry=arguments.new_registry)
    closed = settings.node.closed()
    warn([*written.warnings, *([] if closed is None else [closed])])
    complain(written.problems)
    diff = written.diff().text
    found = {"problems": written.problems, "warnings": written.warnings}
    show(arguments, {"diff": diff.splitlines(), **found}, diff)
    return 1 if written.problems else 0


async def _serve(settings: Settings, arguments: argparse.Namespace, key: OuterKey | None) -> None:
    empty: bool = arguments.empty
    plain = empty or settings.store.dsn is not None  # replicas have no demo
    demo = Demo(_DEMO_TASK, partial(_demo_records, empty=empty), empty)
    await _started(settings)(
        settings,
        announced_to(arguments, settings, _WITHOUT_DEMO if plain else _WITH_DEMO),
        orders_of_signals(),
        demo,
        new_registry=arguments.new_registry,
        secrets_key=key,
    )
    say_ended(arguments)


def _started(settings: Settings) -> Callable[..., Awaitable[None]]:
    """Return what serves: one process, or several."""
    if settings.node.workers == 1:
        return up
    from bascule.app.up_workers import up_with_workers  # noqa: PLC0415 - few have several

    return up_with_workers


def _demo_records(data_dir: Path, *, empty: bool) -> Path | None:
    """Write the demo's records, or take them away; return their folder if there is one to load."""
    folder = data_dir / DEMO_FOLDER
    if empty and not folder.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if not empty:
        write_records(folder)
    return folder
