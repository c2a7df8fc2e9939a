"""``bascule approvals``: what waits for somebody, shown exactly, approved or denied.

Whoever approves has seen what: the digest of what was shown goes with the decision, and the server
refuses it if anything else is asked by then.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager

from bascule.cli import approval_hook_key
from bascule.cli.approval_words import approval_table, question_text, step_line
from bascule.cli.command import print_line, run_async, show
from bascule.cli.endpoint import TOKEN_SECONDS, NotServing, reach, verb
from bascule.cli.failures import report
from bascule.cli.parser import EXIT_FAILED, Option, Parser, actions_of, many, option, switch
from bascule.cli.terminal import ANSWER_SECONDS, NO, YES, answer_to, somebody_is_there
from bascule.cli.values import count
from bascule.client.approvals import ApprovalsClient
from bascule.client.http import ApiError
from bascule.clock import SYSTEM_CLOCK
from bascule.errors import BasculeError
from bascule.model.approval import STATES, Verb
from bascule.wire.api.approvals import FILTERS, ApprovalQuestion, NewDecision

_LISTED = 50
_ID = re.compile(r"(apr-)?[0-9a-f]{1,24}", re.ASCII)
_WHOLE_ID = len("apr-") + 24
_WATCHED_SECONDS = 86_400.0
#: How long one request waits.
_WAIT_SECONDS = 30.0
#: The exit codes of ``wait``; an approval that was used was given.
WAIT_CODES: Mapping[str, int] = {
    "approved": 0,
    "claimed": 0,
    "denied": 3,
    "expired": 4,
    "withdrawn": 5,
    "void": 6,
    "pending": 7,
}
_LIST_EXAMPLES = """\
  bascule approvals list
  bascule approvals list --state denied --state expired --server github
  bascule approvals list --all --person alice --json
"""
_APPROVE_EXAMPLES = """\
  bascule approvals approve apr-3f0c9a5e          # shows it and asks
  bascule approvals approve 3f0c --reason "agreed with Ann"
  bascule approvals approve 3f0c --digest 9b1f…   # what you were shown, and nothing else
"""
_WATCH_EXAMPLES = """\
  bascule approvals watch                         # asks about each, on a terminal
  bascule approvals watch --json | jq -r 'select(.state == "pending").id'
"""
_WAIT_EXAMPLES = """\
  bascule approvals wait apr-3f0c9a5e --seconds 600

Exit codes: 0 approved, 3 denied, 4 expired, 5 withdrawn, 6 void, 7 still pending.
"""


class NoSuchApproval(BasculeError):
    """There is no approval of that id, or more than one begins so."""

    code = "not_found"


def fill(group: Parser) -> None:
    """Add the commands of ``approvals``."""
    actions = actions_of(group)
    verb(actions, "list", "list what waits for a decision", list_approvals, *_filters(),
         examples=_LIST_EXAMPLES).takes(
        many("--state", "STATE", f"in this state ({', '.join(STATES)}); may be repeated; pending",
             choices=STATES),
        switch("--all", "in every state"),
        option("--limit", "N", f"at most this many ({_LISTED})", type=count, default=_LISTED),
    )  # fmt: skip
    one = option("id", "ID", "the approval; its first characters will do", type=approval_id)
    reason = option("--reason", "TEXT", "why; whoever asked is told", default="")
    verb(actions, "show", "show one with all that is decided on", show_one).takes(one)
    verb(actions, "approve", "show one, and approve it", approve,
         examples=_APPROVE_EXAMPLES).takes(
        one,
        option("--digest", "DIGEST", "approve what was shown under this digest, without asking"),
        reason,
        switch("--yes", "approve without asking"),
    )  # fmt: skip
    verb(actions, "deny", "deny one", deny).takes(one, reason)
    verb(actions, "watch", "follow what is asked and decided", watch, *_filters(),
         examples=_WATCH_EXAMPLES).takes(
        switch("--no-input", "ask nothing, on a terminal either")
    )  # fmt: skip
    verb(actions, "wait", "wait until one is decided", wait, examples=_WAIT_EXAMPLES).takes(
        one, option("--seconds", "N", "at most so long; else until its deadline", type=count)
    )
    approval_hook_key.add(actions)


def _filters() -> tuple[Option, ...]:
    return (
        option("--task", "ID", "of this task"),
        option("--server", "ID", "of this server"),
        option("--tool", "NAME", "of this tool, by its own name"),
        option("--person", "ID", "of this person's calls"),
    )


def _asked(arguments: argparse.Namespace) -> dict[str, str | None]:
    given = vars(arguments)
    return {name: given[name] for name in FILTERS}


def approval_id(text: str) -> str:
    """Read an id, or the beginning of one; a type for argparse."""
    if not _ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text}: must be an id such as apr-3f0c9a5e")
    return text if text.startswith("apr-") else f"apr-{text}"


@asynccontextmanager
async def client_of(
    arguments: argparse.Namespace, *, seconds: float = TOKEN_SECONDS
) -> AsyncGenerator[ApprovalsClient]:
    """Return the approvals of the process that the arguments lead to."""
    async with reach(arguments, "approver", seconds=seconds) as found, found.api() as api:
        yield ApprovalsClient(api)


async def _named(client: ApprovalsClient, id: str) -> str:
    """Return the whole id that begins so."""
    if len(id) == _WHOLE_ID:
        return id
    page = await client.newest({}, sys.maxsize)
    found = [one.id for one in page.approvals if one.id.startswith(id)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoSuchApproval(f"no approval begins with {id}")
    raise NoSuchApproval(f"{len(found)} approvals begin with {id}: {', '.join(found[:5])}")


# --- looking


def list_approvals(arguments: argparse.Namespace) -> int:
    """Print a table of approvals, the newest first."""
    chosen: list[str] = arguments.state
    if chosen and arguments.all:
        arguments.usage("--all is every state: leave out --state")
    states = None if arguments.all else ",".join(chosen or ["pending"])

    async def listing() -> int:
        async with client_of(arguments) as client:
            page = await client.newest({**_asked(arguments), "state": states}, arguments.limit)
        more = ["there are more: --limit"] if page.next_cursor is not None else []
        none = "there is none" if chosen or arguments.all else "nothing waits for a decision"
        table = approval_table(page.approvals, SYSTEM_CLOCK.now(), none=none)
        return show(arguments, page, table, notes=more)

    return run_async(listing())


def show_one(arguments: argparse.Namespace) -> int:
    """Print one question."""

    async def showing() -> int:
        async with client_of(arguments) as client:
            one = await client.question(await _named(client, arguments.id))
        return show(arguments, one, question_text(one, SYSTEM_CLOCK.now()))

    return run_async(showing())


# --- deciding


def approve(arguments: argparse.Namespace) -> int:
    """Show a question and approve it."""
    digest: str | None = arguments.digest
    if digest is None and not arguments.yes and (arguments.json or not somebody_is_there()):
        arguments.usage("nobody can be asked here: give --digest of what you were shown, or --yes")
    return run_async(_approve(arguments, digest))


async def _approve(arguments: argparse.Namespace, digest: str | None) -> int:
    async with client_of(arguments, seconds=ANSWER_SECONDS + TOKEN_SECONDS) as client:
        one = await client.question(await _named(client, arguments.id))
        if not arguments.json:
            print(question_text(one, SYSTEM_CLOCK.now()), file=sys.stderr)
        asks = digest is None and not arguments.yes and one.state == "pending" and one.whole
        if asks and await answer_to("approve this call? [y/N]") not in YES:
            print("nothing was decided", file=sys.stderr)
            return EXIT_FAILED
        wanted = _decision("approve", digest or one.digest, arguments.reason)
        made = await client.decide(one.id, wanted)
    return show(arguments, made, step_line(made))


def deny(arguments: argparse.Namespace) -> int:
    """Deny a question."""

    async def denying() -> int:
        async with client_of(arguments) as client:
            one = await client.question(await _named(client, arguments.id))
            wanted = _decision("deny", one.digest, arguments.reason)
            made = await client.decide(one.id, wanted)
        return show(arguments, made, step_line(made))

    return run_async(denying())


def _decision(verb: Verb, digest: str, reason: str = "") -> NewDecision:
    return NewDecision(decision=verb, digest=digest, reason=reason)


# --- following


def watch(arguments: argparse.Namespace) -> int:
    """Print every step; ask about each question, where somebody can be asked."""
    asks = somebody_is_there() and not (arguments.json or arguments.no_input)
    return run_async(_watched(arguments, asks=asks))


async def _watched(arguments: argparse.Namespace, *, asks: bool) -> int:
    async with (
        client_of(arguments, seconds=_WATCHED_SECONDS) as client,
        aclosing(client.watch(_asked(arguments))) as steps,
    ):
        if asks:
            print("watching for questions; Ctrl-C ends", file=sys.stderr)
        async for one in steps:
            print_line(arguments, one, step_line(one))
            if asks and one.state == "pending":
                await _decide_at_terminal(client, one.id, arguments)
    raise NotServing("the process has ended")


async def _decide_at_terminal(
    client: ApprovalsClient, id: str, arguments: argparse.Namespace
) -> None:
    """Show a question and do what is said; silence leaves it as it is."""
    try:
        one = await client.question(id)
        if one.state != "pending":  # others were quicker
            return
        print(question_text(one, SYSTEM_CLOCK.now()), file=sys.stderr)
        verb = await _chosen(one)
        if verb is not None:
            await client.decide(id, _decision(verb, one.digest))
    except ApiError as error:
        report(error, as_json=False, arguments=arguments)


async def _chosen(one: ApprovalQuestion) -> Verb | None:
    approving = "approve this call? y: approve, " if one.whole else ""
    said = await answer_to(f"{approving}n: deny, Enter: leave it")
    if said in NO:
        return "deny"
    return "approve" if one.whole and said in YES else None


def wait(arguments: argparse.Namespace) -> int:
    """Wait for a decision; the exit code says which."""
    return run_async(_waited(arguments))


async def _waited(arguments: argparse.Namespace) -> int:
    seconds: float = math.inf if arguments.seconds is None else arguments.seconds
    until = SYSTEM_CLOCK.monotonic() + seconds
    async with client_of(arguments, seconds=_WATCHED_SECONDS) as client:
        id = await _named(client, arguments.id)
        while True:
            left = max(until - SYSTEM_CLOCK.monotonic(), 0)
            one = await client.question(id, min(left, _WAIT_SECONDS))
            if one.state != "pending" or left <= _WAIT_SECONDS:
                break
    show(arguments, one, step_line(one))
    return WAIT_CODES[one.state]
