"""``bascule node``: a node as a process of its own, and how it stands.

gRPC is imported when one is served: help and the other commands do without.
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from bascule.app.hardening import harden
from bascule.app.settings import Settings
from bascule.app.settings_tables import ORIGIN_FORM, Origin
from bascule.asgi.serve import CannotServe
from bascule.cli.command import run_async, shown, warn
from bascule.cli.configuration import CONFIG, DATA_DIR, WORKERS, address, read_settings
from bascule.cli.node_standing import NODE_PORT, NODE_SETTINGS, accept, status
from bascule.cli.parser import (
    ENVIRONMENT,
    JSON,
    TOKEN_VARIABLE,
    Parser,
    actions_of,
    command,
    many,
    option,
    switch,
)
from bascule.cli.serving import (
    JSON_LINES,
    LOGGING,
    not_served,
    orders_of_signals,
    print_announcement,
    say_ended,
)
from bascule.errors import BasculeError, InvalidRecord
from bascule.model.assignment import ALL
from bascule.wire.api.addresses import GATEWAY
from bascule.wire.api.nodes import NodeStanding

if TYPE_CHECKING:
    from bascule.app.node_serve import NodeOrder

_SERVE_EPILOG = """\
The node has the doors of bascule up: tools, MCP clients, chat and guests. What it serves is written
at the control plane; it needs a token of role node from there, in BASCULE_TOKEN or a file. Records
may read and start nothing of this machine, and reach nothing from it, unless it is allowed here or
in [node] of the settings; what is refused says what to add. The node keeps what it knows in its
data directory, and goes on with that when the control plane is away, also from its start on.

With --workers N that many processes share the port, to use more than one core: each connects to
the servers for itself, so that a local server runs N times. One that dies is started again.

  bascule tokens create --role node --name east    # at the control plane
  bascule node serve --registry 127.0.0.1:7071 --allow-executable 'uvx mcp-server-time'
  bascule node serve --registry registry.example:7071 --ca ca.pem --token-file token --workers 4

With --json each announcement is one line of JSON: {"event": "serving", "url", "mcp_url", "node",
"registry", "revision", "state", "reason", "assigned"}, {"event": "ended"}; a start that fails
prints {"error"}.
"""
_STATUS_EPILOG = """\
It asks the process that serves the data directory, as its owner, and needs no token.

  bascule node status
  bascule node status --data-dir /srv/bascule-node --json
"""
_ACCEPT_EPILOG = """\
A node does not take another store than it followed, nor an older state of it: bascule node status
says so. Where the registry is right, this takes what it has; bascule registry announce does so for
all nodes at once.

With --ledger it is the other way round: the control plane does not take the rows of this node's
ledger, which are others than it was sent before. That is so after a restore of the node; if nothing
of the kind was done, look why. Then the ledger goes on as a new one, beside the one before, and
nothing of either is lost.

  bascule node accept
  bascule node accept --ledger
"""


#: How the control plane is found, and as whom the node comes.
FOLLOWING = (
    option("--registry", "HOST:PORT", "where the control plane serves gRPC", required=True),
    option("--token-file", "FILE", f"a file with the node's token; or {TOKEN_VARIABLE}"),
    option("--name", "NAME", "refuse to start as another node than this"),
    option("--ca", "FILE", "reach the control plane with TLS, trusting this file (PEM)"),
    option("--certificate", "FILE", "the node's own certificate for that (PEM)"),
    option("--key", "FILE", "the key of that, where the file does not have it (PEM)"),
    switch("--insecure-registry", "reach a control plane elsewhere without TLS"),
    option("--wait", "SECONDS", "how long a first start waits for it (30)", type=float),
)
#: What records may do on this machine.
ALLOWING = (
    many("--allow-variable", "NAME", "a variable that records may read; may be repeated"),
    many("--allow-executable", "LINE", "what records may start; may be repeated"),
    many("--allow-file", "PATH", "a file that records may read; may be repeated"),
    many("--allow-egress", "HOST", "what records may reach; * is all that is public"),
    many("--admin-origin", "ORIGIN", "an admin page that may call tools here; repeatable"),
)
PLACED = (DATA_DIR, CONFIG, *address(NODE_PORT))


def fill(group: Parser) -> None:
    """Add the commands of ``node``."""
    actions = actions_of(group)
    command(
        actions,
        "serve",
        "serve the tools of a control plane elsewhere",
        serve,
        *FOLLOWING,
        *PLACED,
        ENVIRONMENT,
        *ALLOWING,
        WORKERS,
        *LOGGING,
        JSON_LINES,
        epilog=_SERVE_EPILOG,
    )
    own = (DATA_DIR, CONFIG, JSON)
    command(
        actions, "status", "how a node of this machine stands", status, *own, epilog=_STATUS_EPILOG
    )
    command(
        actions,
        "accept",
        "take what the registry has, after a doubt",
        accept,
        switch("--ledger", "have the node's refused ledger go on as a new one instead"),
        *own,
        epilog=_ACCEPT_EPILOG,
    )


# --- serving


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    harden()  # before anything that is secret is read
    try:
        settings = node_settings(arguments)
        run_async(_serve(settings, node_order(arguments), arguments))
    except (BasculeError, OSError) as error:
        return not_served(error, as_json=arguments.json)
    return 0


def node_settings(arguments: argparse.Namespace) -> Settings:
    """Return settings with what the command line allows besides the file and the environment."""
    settings = read_settings(arguments, usual=NODE_SETTINGS)
    node = settings.node
    more = replace(
        node,
        variables=(*(node.variables or ()), *arguments.allow_variable),
        executables=(*(node.executables or ()), *arguments.allow_executable),
        files=(*(node.files or ()), *arguments.allow_file),
        egress=(*node.egress, *arguments.allow_egress),
        admin_origins=(*node.admin_origins, *_origins(arguments)),
    )
    return replace(settings, node=more)


def _origins(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the origins of the command line; raise InvalidRecord."""
    try:
        return msgspec.convert(arguments.admin_origin, tuple[Origin, ...])
    except msgspec.ValidationError:
        raise InvalidRecord([f"--admin-origin: must be {ORIGIN_FORM}"]) from None


def node_order(arguments: argparse.Namespace) -> NodeOrder:
    """Return what the command line says of the control plane; raise for what it cannot be."""
    if find_spec("grpc") is None or find_spec("google.protobuf") is None:
        raise CannotServe(
            "a node needs packages that are not installed: pip install 'bascule[scale]'"
        )
    from bascule.app.node_serve import NodeOrder  # noqa: PLC0415 - with grpc
    from bascule.client.rpc import RpcAccess  # noqa: PLC0415 - with grpc

    insecure: bool = arguments.insecure_registry
    file: str | None = arguments.token_file
    certificate, key = _path(arguments.certificate), _path(arguments.key)
    if key is not None and certificate is None:
        raise InvalidRecord(["--key: is of no use without --certificate"])
    own = [Path(one).absolute() for one in (file, certificate, key) if one is not None]
    order = NodeOrder(
        registry=_address(arguments.registry),
        access=RpcAccess(
            token=_token(file),
            ca=_path(arguments.ca),
            certificate=certificate,
            key=key,
            insecure=insecure,
        ),
        name=arguments.name,
        private=tuple(map(str, own)),
    )
    wait: float | None = arguments.wait
    return order if wait is None else replace(order, wait_seconds=wait)


def _path(given: str | None) -> Path | None:
    return None if given is None else Path(given)


def _address(given: str) -> str:
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise InvalidRecord(
            [f"--registry: {given!r} is not HOST:PORT, such as registry.example:7071"]
        )
    return given


def _token(file: str | None) -> str:
    """Return the node's token; it stands on no command line, which everybody can list."""
    if file is not None:
        token = Path(file).read_text(encoding="utf-8").strip()
        missing = f"{file}: has no token"
    else:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        missing = f"a node needs a token: set {TOKEN_VARIABLE}, or give --token-file"
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        what = missing if not token else f"{file or TOKEN_VARIABLE}: is not a token"
        made = "make one at the control plane: bascule tokens create --role node --name NAME"
        raise InvalidRecord([f"{what}; {made}"])
    return token


async def _serve(settings: Settings, order: NodeOrder, arguments: argparse.Namespace) -> None:
    announce = _say_as_json if arguments.json else _say
    _warn_of_withheld(settings)
    if settings.node.workers == 1:
        from bascule.app.node_serve import serve_node  # noqa: PLC0415 - with grpc

        await serve_node(settings, order, announce, orders_of_signals())
    else:
        from bascule.app.node_workers import serve_node_workers  # noqa: PLC0415 - with grpc

        await serve_node_workers(settings, order, announce, orders_of_signals())
    say_ended(arguments)


def _warn_of_withheld(settings: Settings) -> None:
    """Name the proxies and certificates of this machine that servers do without."""
    from bascule.cli.node_checks import way_out  # noqa: PLC0415 - with grpc

    found = way_out(settings.rules())
    if found.mend:
        warn([f"{found.words}; {found.mend}"])


def _say(url: str, standing: NodeStanding) -> None:
    """Tell a person where the node serves, and how it stands."""
    print(f"Bascule serves at {url}")
    print(f"MCP clients connect to {url}{GATEWAY}")
    print(shown(_followed(standing)))
    print(shown(_served(standing)), flush=True)


def _served(standing: NodeStanding) -> str:
    if standing.assigned != str(ALL):
        return f"It serves what it is assigned: {standing.assigned}"
    return (
        "It is assigned everything; to give it less, at the control plane: bascule nodes assign "
        f"{standing.node} --task ID"
    )


def _followed(standing: NodeStanding) -> str:
    crew = f" with {len(standing.workers)} workers" if standing.workers else ""
    whom = f"node {standing.node} of {standing.registry}{crew}"
    if standing.state == "ok":
        return f"It is {whom}, at revision {standing.revision}"
    return (
        f"It is {whom}, which is not followed: it serves what it knew at revision "
        f"{standing.revision}, confirmed at {standing.confirmed_at}: {standing.reason}"
    )


def _say_as_json(url: str, standing: NodeStanding) -> None:
    print_announcement(
        {
            "event": "serving",
            "url": url,
            "mcp_url": f"{url}{GATEWAY}",
            "node": standing.node,
            "registry": standing.registry,
            "revision": standing.revision,
            "state": standing.state,
            "reason": standing.reason,
            "assigned": standing.assigned,
            **({"workers": len(standing.workers)} if standing.workers else {}),
        }
    )
