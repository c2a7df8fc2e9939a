"""``accept``: what operators wrote and may not, and an administrator's word to let it in.

Below: ``records.py``, the registry's client. Above: ``servers`` and ``backends``. What is accepted
is what was read and shown: a proposal that is replaced meanwhile is not let in.
"""

from __future__ import annotations

import argparse
from functools import partial

from msgspec import to_builtins

from bascule.cli.command import print_json, shown
from bascule.cli.endpoint import ask
from bascule.cli.records import Noun, print_rows, say_written, verb
from bascule.client.registry import Proposal, RegistryClient, Written
from bascule.errors import InvalidRecord


def add_accept_verb(actions: object, noun: Noun) -> None:
    """Add the command that lets in what waits, or lists it."""
    call = f"  bascule {noun.name} accept"
    parser = verb(
        actions,
        "accept",
        f"let in a {noun.kind} that gives a credential a new target, as an administrator",
        partial(accept, noun),
        examples=f"{call}\n{call} ID\n",
    )
    parser.add_argument(
        "id", metavar="ID", nargs="?", help=f"the {noun.kind}; without it, list what waits"
    )


def accept(noun: Noun, arguments: argparse.Namespace) -> int:
    """Let in what is proposed for a record, or list what is."""
    if arguments.id is None:
        return _list(noun, arguments)
    proposal, written = ask(arguments, partial(_accepted, noun=noun, key=arguments.id))
    if not arguments.json:
        for pair in proposal.pairs:
            print(f"accepted: {shown(pair.reference)} for {shown(pair.target)}")
        print(f"  (asked for by {shown(proposal.actor)})")
    return say_written(noun, arguments, written, "wrote")


async def _accepted(registry: RegistryClient, *, noun: Noun, key: str) -> tuple[Proposal, Written]:
    waiting = {one.id: one for one in await registry.proposals() if one.kind == noun.kind}
    if key not in waiting:
        known = ", ".join(waiting) or "nothing"
        raise InvalidRecord([f"nothing is proposed for {noun.kind} {key!r} (waiting: {known})"])
    found = waiting[key]
    return found, await registry.accept(noun.kind, key, proposal=found.proposal)


def _list(noun: Noun, arguments: argparse.Namespace) -> int:
    every = ask(arguments, lambda registry: registry.proposals())
    waiting = [one for one in every if one.kind == noun.kind]
    if arguments.json:
        print_json({"proposals": to_builtins(waiting)})
        return 0
    rows = [
        [shown(one.id), shown(one.actor), shown(pair.reference), shown(pair.target)]
        for one in waiting
        for pair in one.pairs
    ]
    print_rows((noun.kind, "asked by", "credential", "for"), rows, "nothing waits")
    return 0
