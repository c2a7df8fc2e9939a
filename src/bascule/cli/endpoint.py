"""Where a running Bascule is, and a token for it, found without typing either.

Flags come before ``BASCULE_URL`` and ``BASCULE_TOKEN``, and those before the data directory: its
process says there where it serves, and whoever may read the directory may make tokens in it. A
token of the data directory is sent to that directory's own process and to nobody else, and no token
at all to an address of the directory before whoever answers there has proved to hold its lock.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from hmac import compare_digest
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from bascule.app.data_dir import (
    OWNER_HEADER,
    SETUP_FILE,
    URL_FILE,
    owner_key,
    owner_proof,
    proof_of,
)
from bascule.app.owner_access import has_tokens, owner_note, owner_tokens
from bascule.app.settings import Settings
from bascule.auth.token_request import TokenRequest
from bascule.auth.token_store import refuse_open_folder
from bascule.auth.tokens import Tokens
from bascule.cli.acts import whoever
from bascule.cli.command import run_async
from bascule.cli.command_line import typed
from bascule.cli.configuration import CONFIG, DATA_DIR, read_settings
from bascule.cli.page_link import here
from bascule.cli.parser import (
    JSON,
    TOKEN_VARIABLE,
    Actions,
    Option,
    Parser,
    Run,
    command,
    option,
)
from bascule.client.http import ApiClient, ApiError, open_api
from bascule.client.registry import RegistryClient
from bascule.errors import BasculeError
from bascule.model.json import is_object
from bascule.model.role import Role
from bascule.wire.api.addresses import INSTANCE

URL_VARIABLE = "BASCULE_URL"
#: How long a token lives that a command makes for itself, if the command cannot revoke it.
TOKEN_SECONDS = 300.0
_PROOF_SECONDS = 10.0

T = TypeVar("T")


class NotServing(BasculeError):
    """There is no process to talk to."""

    code = "not_serving"


class NoToken(BasculeError):
    """There is a process, and no token for it."""

    code = "no_token"


class Endpoint(Struct, frozen=True):
    """A process that serves, and a token that it accepts."""

    url: str
    token: str
    #: A file of certificates to trust, where the process's own is known.
    tls_ca: str | None = None
    #: Whether plain HTTP may be sent beyond loopback.
    insecure: bool = False
    #: Whether the token was made for the command, and so has the role it asked for.
    made: bool = False

    def api(self) -> ApiClient:
        """Return a client of the process, to be opened."""
        return open_api(self.url, self.token or None, tls_ca=self.tls_ca, insecure=self.insecure)


def api_options(*names: str) -> tuple[Option, ...]:
    """Return the options of every command that talks to a process; ``names`` are of the URL's."""
    first, *others = names or ("--api-url", "--url")
    return (
        option(first, "URL", "the address of Bascule", *others, dest="api_url"),
        option("--token", "TOKEN", f"a token for it; safer: {TOKEN_VARIABLE}"),
        *(DATA_DIR, CONFIG, JSON),
    )


def verb(
    actions: Actions,
    name: str,
    summary: str,
    run: Run,
    *options: Option,
    examples: str = "",
    url: Sequence[str] = (),
) -> Parser:
    """Add one command that talks to a process; ``url`` are its names where ``--url`` is taken."""
    epilog = examples and f"examples:\n{examples}"
    return command(actions, name, summary, run, *api_options(*url), *options, epilog=epilog)


def ask(
    arguments: argparse.Namespace,
    work: Callable[[RegistryClient], Awaitable[T]],
    role: Role = "viewer",
) -> T:
    """Do some work with the registry of the process that the arguments lead to."""

    async def asking() -> T:
        async with registry_of(arguments, role) as registry:
            return await work(registry)

    return run_async(asking())


@asynccontextmanager
async def registry_of(
    arguments: argparse.Namespace, role: Role = "viewer"
) -> AsyncGenerator[RegistryClient]:
    """Return the registry of the process that the arguments lead to.

    ``role`` is what the work needs. Whoever holds the data directory is the owner of the machine,
    and writes as an administrator: an operator's writes may have to wait for one.
    """
    async with reach(arguments, role) as found, found.api() as api:
        yield RegistryClient(api)


@asynccontextmanager
async def reach(
    arguments: argparse.Namespace,
    role: Role,
    task: str | None = None,
    *,
    name: str | None = None,
    seconds: float = TOKEN_SECONDS,
) -> AsyncGenerator[Endpoint]:
    """Return where to go; a token that was made for it ends with the block, or after so long.

    Such a token has the role that is asked for, and is named for the command unless by ``name``.
    """
    settings = read_settings(arguments)
    data = Path(settings.data_dir)
    given: str | None = arguments.api_url or os.environ.get(URL_VARIABLE) or None
    token: str | None = arguments.token or os.environ.get(TOKEN_VARIABLE) or None
    url = (given or served_url(data)).rstrip("/")
    there = Endpoint(
        url,
        token or "",
        # What the data directory says is of this machine, with the certificate of its settings.
        tls_ca=settings.server.tls_certificate if given is None else None,
        insecure=given is None or settings.server.insecure,
    )
    if token is None:
        _refuse_strangers(url, data)
    if given is None or token is None:
        await _refuse_impostor(there, data)
    if token is not None:
        yield there
        return
    wanted = TokenRequest(
        name=name or f"cli-{arguments.command}", role=role, task_id=task, ttl_seconds=seconds
    )
    async with _local_token(settings, wanted) as made:
        yield replace(there, token=made, made=True)


# --- where


def served_url(data: Path, command: str = "up") -> str:
    """Return where the process of a data directory serves; raise NotServing.

    ``command`` is what starts one.
    """
    refuse_open_folder(data)
    try:
        url = (data / URL_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise NotServing(f"nothing serves {data}: {_how_to_start(data, command)}") from None
    except OSError as error:
        raise NotServing(f"{data}: {error.strerror}; give --api-url and --token") from error
    if owner_key(data) is None:
        raise NotServing(
            f"the process that served {data} at {url} has ended: {_how_to_start(data, command)}"
        )
    return here(url)


async def proven_url(settings: Settings, command: str = "up") -> str:
    """Return where the process of a data directory serves, once it has proved that it does."""
    data = Path(settings.data_dir)
    there = Endpoint(
        served_url(data, command), "", tls_ca=settings.server.tls_certificate, insecure=True
    )
    await _refuse_impostor(there, data)
    return there.url


def owner_headers(data: Path, url: str) -> dict[str, str]:
    """Return what shows the process of a data directory that its owner asks."""
    key = owner_key(data)
    return {} if key is None else {OWNER_HEADER: owner_proof(key, _port_of(url))}


async def _refuse_impostor(there: Endpoint, data: Path) -> None:
    """Refuse whoever answers at an address without holding the data directory's lock."""
    key = owner_key(data)
    nonce = secrets.token_hex(32)
    expected = "" if key is None else proof_of(key, nonce, _port_of(there.url))
    async with replace(there, token="").api() as api:
        try:
            answer = await api.request(
                "GET", INSTANCE, query={"nonce": nonce}, seconds=_PROOF_SECONDS
            )
        except ApiError:
            answer = None
    proof = answer.body.get("proof") if answer is not None and is_object(answer.body) else None
    if not (
        expected and isinstance(proof, str) and compare_digest(proof.encode(), expected.encode())
    ):
        raise NotServing(
            f"another program answers at {there.url} than the one that serves {data}; no token was "
            "sent to it. If Bascule is just starting, try again"
        )


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _how_to_start(data: Path, command: str) -> str:
    usual = Path(Settings().data_dir).expanduser()
    where = "" if data == usual else f" --data-dir {shlex.quote(str(data))}"
    return f"start it with: {typed(f'{command}{where}')}"


# --- the token


def _refuse_strangers(url: str, data: Path) -> None:
    """Refuse to hand a token of the data directory to anybody but its own process."""
    try:
        own = served_url(data).rstrip("/")
    except NotServing:
        own = None
    if own != url:
        raise NoToken(
            f"no token for {url}: give --token or {TOKEN_VARIABLE} "
            f"(make one where it serves: {typed('tokens create --role admin')})"
        )


@asynccontextmanager
async def _local_token(settings: Settings, wanted: TokenRequest) -> AsyncGenerator[str]:
    """Return a token that ends with the block; for an administrator the setup token, if it is good.

    That it is made is written to the ledger, but for a viewer's: it changes nothing, and a ledger
    that cannot be written must not keep anybody from looking. Its end is not: it lives shortly in
    any case, and what people did would stand among the ends of tokens.
    """
    data = Path(settings.data_dir)
    if not has_tokens(settings):
        raise NoToken(f"{data} has no tokens; give --token or {TOKEN_VARIABLE}")
    note = None if wanted.role == "viewer" else owner_note(settings)
    async with owner_tokens(settings, note=note) as tokens:
        setup = await _setup_token(tokens, data) if wanted.role == "admin" else None
        if setup is not None:
            yield setup
            return
        minted = await tokens.mint(
            wanted.name,
            wanted.role,
            by=whoever(),
            task_id=wanted.task_id,
            ttl_seconds=wanted.ttl_seconds,
        )
        try:
            yield minted.token
        finally:
            await end_token(tokens, minted.record.id)


async def end_token(tokens: Tokens, token_id: str) -> None:
    """End a token that a command made for itself; nothing is written of that."""
    tokens.note = None
    await tokens.revoke(token_id)


async def _setup_token(tokens: Tokens, data: Path) -> str | None:
    try:
        token = (data / SETUP_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    principal = await tokens.verify(token)
    return token if principal is not None and principal.role == "admin" else None
