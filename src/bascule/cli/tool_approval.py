"""A call that needs somebody's approval: who is asked, how it waits, and what is said of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from bascule.cli.command import shown
from bascule.cli.command_line import typed
from bascule.cli.parser import Option, one_of, option, switch
from bascule.cli.progress import StatusLine
from bascule.cli.terminal import YES, answer_to, somebody_is_there
from bascule.clock import rfc3339
from bascule.model.approval import ApprovalRequest, Asking, Waiting
from bascule.node.approvers import AllowAll, AskFunction
from bascule.node.contract import ToolSession
from bascule.node.ports import Approver
from bascule.node.remote_session import RemoteSession
from bascule.policy.characters import render_safe
from bascule.wire.strict_json import dumps

#: For how long a terminal waits, unless it is told.
WAIT_SECONDS = 3_600.0
_ENDS_HERE = (
    "nobody can use that approval later: the token of this command ends with it; wait for it "
    "(--wait SECONDS), or call with a client's token of your own (--token)"
)


#: Who approves a call over files, unless the person at the terminal does.
APPROVING = one_of(
    switch("--yes", "approve what needs approval"),
    switch("--no-input", "never ask for approval"),
)


def waiting_options(seconds: Callable[[str], float]) -> Option:
    """Return the options that say how long a call waits; ``seconds`` reads a number of them."""
    wait = "wait so long for approval by somebody else (a terminal: an hour)"
    return one_of(
        option("--wait", "SECONDS", wait, type=seconds),
        switch("--no-wait", "do not wait for approval: exit with 11, and say how to give it"),
    )


def wait_of(arguments: argparse.Namespace) -> float:
    """Return for how many seconds a command waits for approval: on a terminal, or if it says so."""
    if arguments.wait is not None:
        return arguments.wait
    waits = somebody_is_there() and not (arguments.no_wait or arguments.no_input)
    return WAIT_SECONDS if waits else 0.0


def asking(arguments: argparse.Namespace, line: StatusLine) -> Asking:
    """Return how a call asks: whoever waits is told for what."""

    def told(waiting: Waiting) -> None:
        id = waiting.approval_id
        with line.held():
            print(f"approval needed: {id}, until {rfc3339(waiting.expires_at)}", file=sys.stderr)
            print(approve(id, arguments), file=sys.stderr)
        line.say(f"waiting for somebody to approve {id}")

    return Asking(wait=wait_of(arguments), told=told)


def approve(id: str, arguments: argparse.Namespace) -> str:
    """Say how somebody approves a call."""
    return f"to approve it, somebody types: {typed(f'approvals approve {id}', arguments)}"


def how_to_go_on(waiting: Waiting, session: ToolSession, arguments: argparse.Namespace) -> str:
    """Say what can be done about a call that came back without an answer."""
    if isinstance(session, RemoteSession):  # with a token that was made for this command
        return _ENDS_HERE
    return f"{approve(waiting.approval_id, arguments)}; then call it once more"


def approver_of(arguments: argparse.Namespace, line: StatusLine) -> Approver | None:
    """Return who approves a call over files: everybody, the person at the terminal, or nobody."""
    if arguments.yes:
        return AllowAll()
    if arguments.no_input or not somebody_is_there():
        return None
    return AskFunction(lambda question: _ask(question, line))


async def _ask(question: ApprovalRequest, line: StatusLine) -> bool:
    """Ask the person at the terminal; silence is no."""
    what = render_safe(dumps(question.arguments).decode(), one_line=True)
    with line.held():
        sys.stderr.write(
            f"approval needed ({shown(question.rule)})\n"
            f"  server     {question.server}\n"
            f"  tool       {shown(question.tool)}\n"
            f"  arguments  {what}\n"
        )
        return await answer_to("call it? [y/N]") in YES
