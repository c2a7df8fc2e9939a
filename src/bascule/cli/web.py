"""``bascule web``: a link to the admin page of the process that serves a data directory.

It works on the files, as ``bascule tokens`` does: whoever may read the data directory needs no
token. The code stands behind the ``#`` of an address, which browsers send to nobody, and never in
the arguments of a process, which everybody on the machine can list.
"""

from __future__ import annotations

import argparse
import secrets
import webbrowser
from collections.abc import Generator
from contextlib import contextmanager
from html import escape
from pathlib import Path

from msgspec import Struct

from bascule.app.owner_access import owner_note, owner_tokens
from bascule.app.settings import Settings
from bascule.auth.links import PAGE_ROLES, make_confirmation, make_link
from bascule.auth.token_request import TokenRequest
from bascule.auth.tokens import Minted, Tokens
from bascule.cli.acts import whoever
from bascule.cli.command import run_async, show, shown
from bascule.cli.configuration import CONFIG, DATA_DIR, read_settings
from bascule.cli.endpoint import proven_url
from bascule.cli.failures import report
from bascule.cli.page_link import page_link
from bascule.cli.parser import JSON, Parser, declared, option, switch
from bascule.cli.tokens import doubts_of, naming_options
from bascule.clock import SYSTEM_CLOCK, rfc3339
from bascule.db.private_files import write_private

_EPILOG = """\
A link opens the page once, within ten minutes. The page stays open until you log out, the process
ends, twelve hours have passed, or nobody has used it for half an hour. A link that is opened a
second time closes the page that it opened first.

examples:
  bascule web
  bascule web --open
  bascule web --role viewer
  bascule web --role client --task demo --user alice
  bascule web --confirm    # a code, where the page asks for one
"""
#: A browser has read the file long before; it is removed as soon as the link is used.
_FILE_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_REDIRECT = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>Bascule</title>
"""


class LinkMade(Struct, frozen=True, kw_only=True):
    """A link to the page, and whose page it opens."""

    url: str
    role: str
    person: str | None
    task_id: str | None
    expires_at: str | None
    warnings: tuple[str, ...]


class ConfirmationMade(Struct, frozen=True, kw_only=True):
    """A code that the page asks for."""

    code: str
    expires_at: str | None


def fill(parser: Parser) -> None:
    """Add the options of ``web``."""
    declared(
        parser,
        web,
        option("--role", None, "what the page may do (admin)", choices=PAGE_ROLES),
        option("--user", "ID", "whose page it is: a person of the registry"),
        option("--task", "ID", "the task of a client's page"),
        switch("--open", "open it in the browser instead of printing it"),
        switch("--confirm", "print a code for what the page asks you to confirm"),
        *(DATA_DIR, CONFIG, JSON),
        epilog=_EPILOG,
    )


def web(arguments: argparse.Namespace) -> int:
    """Make a link, and print or open it."""
    chosen = (arguments.role, arguments.user, arguments.task, arguments.open or None)
    if arguments.confirm and any(word is not None for word in chosen):
        arguments.usage("--confirm prints a code; it takes none of --role, --user, --task, --open")
    try:
        return run_async(_make(read_settings(arguments), arguments))
    except OSError as error:
        return report(error, as_json=arguments.json)


async def _make(settings: Settings, arguments: argparse.Namespace) -> int:
    url = await proven_url(settings)
    async with owner_tokens(settings, note=owner_note(settings)) as tokens:
        if arguments.confirm:
            minted = await make_confirmation(tokens, by=whoever())
            code, until = minted.token, rfc3339(minted.record.expires_at)
            return show(arguments, ConfirmationMade(code=code, expires_at=until), code)
        role = arguments.role or "admin"
        wanted = TokenRequest(
            name=f"link of {arguments.user or role}",
            role=role,
            person=arguments.user,
            task_id=arguments.task,
        )
        with naming_options(arguments):
            minted = await make_link(tokens, wanted, by=whoever())
        link = page_link(url, minted.token)
        made = LinkMade(
            url=link,
            role=role,
            person=arguments.user,
            task_id=arguments.task,
            expires_at=rfc3339(minted.record.expires_at),
            warnings=await doubts_of(minted.record, settings),
        )
        if arguments.open and await _opened(tokens, minted, link, Path(settings.data_dir)):
            words = "opened in the browser; if it shows nothing, open what this prints: bascule web"
            return show(arguments, made, notes=[words], warnings=made.warnings)
    return show(arguments, made, link, notes=_notes(made, arguments), warnings=made.warnings)


def _notes(made: LinkMade, arguments: argparse.Namespace) -> list[str]:
    unopened = ["no browser was found: open this link in one"] if arguments.open else []
    whose = f"{made.role}, {shown(made.person)}" if made.person else made.role
    return [*unopened, f"it opens the page once, within ten minutes, as {whose}"]


# --- opening it


async def _opened(tokens: Tokens, link: Minted, url: str, data: Path) -> bool:
    """Lead the browser to the page, by a file; say whether there is a browser."""
    with _redirect(data, url) as file:
        if not webbrowser.open(file.as_uri()):
            return False
        until = SYSTEM_CLOCK.monotonic() + _FILE_SECONDS
        while SYSTEM_CLOCK.monotonic() < until and await tokens.look_up(link.token) is not None:
            await SYSTEM_CLOCK.sleep(_LOOK_SECONDS)
    return True


@contextmanager
def _redirect(data: Path, url: str) -> Generator[Path]:
    """Write a private page that leads to the address; it is gone after the block."""
    file = (data / f"open-{secrets.token_hex(8)}.html").absolute()
    write_private(file, _REDIRECT.format(link=escape(url)).encode())
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)
