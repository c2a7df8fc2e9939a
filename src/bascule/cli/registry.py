"""``bascule registry``: the registry as a process of its own."""

from __future__ import annotations

import argparse

from bascule.app.hardening import harden
from bascule.app.registry_serve import serve_registry
from bascule.app.settings import Settings
from bascule.cli.command import run_async, show, shown
from bascule.cli.configuration import read_settings
from bascule.cli.copies import add_copying
from bascule.cli.endpoint import ask, verb
from bascule.cli.parser import Parser, actions_of, command, option
from bascule.cli.secrets import given_key
from bascule.cli.serving import SERVING, announced_to, not_served, orders_of_signals, say_ended
from bascule.control.envelope import OuterKey
from bascule.errors import BasculeError

_SERVE_EPILOG = """\
The registry, tokens, secrets, approvals, the ledger and the admin page; no tool is called here, and
no server is started. Several processes serve one registry with --dsn; without it everything is in
the data directory, as with bascule up.

  bascule registry serve
  bascule registry serve --dsn postgresql://bascule@db.example/bascule
"""
_ANNOUNCE_EXAMPLES = """\
  bascule registry announce --succeeds 5f1c9a7be02d4418    # as the nodes that refuse this one say
"""
_TRY_NEXT = {"servers list": "", "tokens create --role admin": ""}


def fill(group: Parser) -> None:
    """Add the commands of ``registry``."""
    actions = actions_of(group)
    command(
        actions,
        "serve",
        "serve the registry, its API and the admin page, without a node",
        serve,
        *SERVING,
        epilog=_SERVE_EPILOG,
    )
    verb(
        actions,
        "announce",
        "say that this registry replaces another, which nodes still follow",
        announce,
        examples=_ANNOUNCE_EXAMPLES,
    ).takes(
        option("--succeeds", "STORE_ID", "the store that nodes follow", required=True),
    )
    add_copying(actions)


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    harden()  # before anything that is secret is read
    try:
        settings = read_settings(arguments)
        key = given_key(arguments)  # before the event loop opens descriptors of its own
        run_async(_serve(settings, arguments, key))
    except (BasculeError, OSError) as error:
        return not_served(error, as_json=arguments.json)
    return 0


def announce(arguments: argparse.Namespace) -> int:
    """Name the store that this one replaces."""
    succeeds: str = arguments.succeeds
    done = ask(arguments, lambda registry: registry.announce(succeeds), "admin")
    words = f"store {done.store_id} replaces {done.predecessor}: nodes that follow that one take it"
    return show(arguments, done, shown(words))


async def _serve(settings: Settings, arguments: argparse.Namespace, key: OuterKey | None) -> None:
    await serve_registry(
        settings,
        announced_to(arguments, settings, _TRY_NEXT, gateway=False),
        orders_of_signals(),
        new_registry=arguments.new_registry,
        secrets_key=key,
    )
    say_ended(arguments)
