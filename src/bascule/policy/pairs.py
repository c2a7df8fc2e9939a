"""Pairs of a credential and where it goes: what an administrator answers for.

Whoever may write records and not see credentials could send one to a server of their own and read
it there. So every pair of a reference and a target is an administrator's word. A target is a host,
or a command line with what decides besides it what runs and where that connects: the folder,
variables that load code, addresses in variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from bascule.model.backend import BackendRecord
from bascule.model.code_variables import loads_code
from bascule.model.reference import (
    PUBLIC_VARIABLES,
    Stored,
    Template,
    parse_reference,
    parse_template,
    parse_value,
)
from bascule.model.server import Http, ServerRecord, Stdio
from bascule.model.task import Executable, TaskRecord

_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_ADDRESS_NAME = re.compile(
    r"(?:^|_)(?:.*PROXY|URL|URI|HOST|HOSTNAME|ENDPOINT|ADDR|ADDRESS|SERVER|BASE|DOMAIN|GATEWAY|"
    r"ORIGIN|SITE|PORT|CA_BUNDLE|CERT_FILE|CERT_DIR|CA_CERTS|TARGET|UPSTREAM|RELAY|BROKERS?|MASTER|"
    r"REMOTE|PEERS?|WEBHOOK|CALLBACK|REGISTRY|NAMESERVERS?)(?:$|_)"
    r"|(?:HOST|HOSTADDR|HOSTNAME|URL|URI|ENDPOINT|CABUNDLE)S?$|^(?:SSLKEYLOGFILE|HOSTALIASES)$",
    re.IGNORECASE,
)
#: A text that may be a host: ``db.example``, ``localhost:5432``, ``10.0.0.1``, ``[::1]``.
_ADDRESS_TEXT = re.compile(
    r"(?:[^\s/@]+@)?(?:[\w-]+(?:\.[\w-]+)+\.?|[\w-]+(?=:)|\[[0-9a-f:.%\w]+\])(?::\d{1,5})?(?:/\S*)?",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[^\w@%+=:,./-]", re.ASCII)


class Pair(Struct, frozen=True, order=True):
    """A credential reference and its target.

    ``beside`` belongs to the target as well: a process's variables, and whom a host is believed
    to be by. Values there are not shown.
    """

    reference: str
    target: str
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = ", ".join(text.partition("=")[0] for text in self.beside)
        return f"{self.reference} for {self.target}" + (f" with {names}" if names else "")


def pairs_of(record: object) -> frozenset[Pair]:
    """Return the pairs of a record; only servers, backends and tasks have any."""
    if isinstance(record, ServerRecord):
        local = () if record.stdio is None else _of_stdio(record.stdio)
        remote = () if record.http is None else _of_http(record.http)
        return frozenset((*local, *remote))
    if isinstance(record, BackendRecord):
        return frozenset(_of_backend(record))
    if isinstance(record, TaskRecord) and record.executable is not None:
        return frozenset(_of_executable(record.executable))
    return frozenset()


def command_line(stdio: Stdio) -> tuple[str, tuple[str, ...]]:
    """Return a process as a target: its line, and the variables that belong to it."""
    line = " ".join(_quoted(word) for word in (stdio.command, *stdio.args))
    if stdio.cwd is not None:
        line = f"cd {_quoted(stdio.cwd)} && {line}"
    return line, tuple(
        f"{name}={text}" for name, text in sorted(stdio.env.items()) if _directs(name, text)
    )


def _of_stdio(stdio: Stdio) -> Iterator[Pair]:
    line, beside = command_line(stdio)
    references = {
        *_references((stdio.command, *stdio.args), parse_template),
        *_references(stdio.environment().values(), parse_value),
    }
    return (Pair(reference, line, beside) for reference in references)


def _directs(name: str, text: str) -> bool:
    """Say whether a variable decides what runs or where that connects."""
    if loads_code(name) or "://" in text or _ADDRESS_NAME.search(name) is not None:
        return True
    return any(_ADDRESS_TEXT.fullmatch(word.strip()) for word in text.split(","))


def _of_http(http: Http) -> Iterator[Pair]:
    urls, references = [http.url], {*_references(http.headers.values(), parse_value)}
    if http.auth_ref is not None:
        references |= _references((http.auth_ref,), parse_reference)
    if http.auth is not None:
        references |= _references((http.auth.ref,), parse_reference)
        references |= _references((http.auth.client_id or "",), parse_template)
        urls += [] if http.auth.token_url is None else [http.auth.token_url]
    if http.tls is not None:
        files = (http.tls.client_certificate, http.tls.client_key)
        references |= {f"file://{path.removeprefix('file://')}" for path in files if path}
    ca = () if http.tls is None or http.tls.ca is None else (f"tls.ca={http.tls.ca}",)
    return _each(references | _references(urls, parse_template), urls, ca)


def _of_backend(record: BackendRecord) -> Iterator[Pair]:
    references = _references(record.headers.values(), parse_value)
    references |= _references((record.base_url,), parse_template)
    if record.key_ref is not None:
        references |= _references((record.key_ref,), parse_reference)
    return _each(references, (record.base_url,))


def _of_executable(executable: Executable) -> Iterator[Pair]:
    target = f"{executable.path} {executable.checksum_sha256 or ''}".strip()
    references = _references((*executable.env.values(), *executable.args), parse_value)
    return (Pair(reference, target) for reference in references)


def _each(
    references: Iterable[str], urls: Iterable[str], beside: tuple[str, ...] = ()
) -> Iterator[Pair]:
    targets = {origin(url) for url in urls}
    return (Pair(reference, target, beside) for reference in references for target in targets)


def _references(texts: Iterable[str], parse: Callable[[str], Template | Stored]) -> set[str]:
    found: set[str] = set()
    for text in texts:
        try:
            value = parse(text)
        except ValueError:
            continue  # it is no reference, and is never resolved
        if isinstance(value, Stored):
            found.add(f"{value.scheme}://{value.target}")
        else:
            names = {variable.name for variable in value.variables} - PUBLIC_VARIABLES
            found |= {f"${{ENV:{name}}}" for name in names}
    return found


def origin(url: str) -> str:
    """Return whose server a URL leads to; the whole text where a variable decides that."""
    found = _ORIGIN.match(url)
    if found is None or "$" in found[0]:
        return url
    scheme, host = found[1].lower(), found[2].lower()
    return f"{scheme}://{host.removesuffix(_DEFAULT_PORTS.get(scheme, ' '))}"


def _quoted(word: str) -> str:
    """Return a word as a shell would be given it."""
    if word and _QUOTED.search(word) is None:
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def shown(pair: Pair) -> dict[str, str]:
    """Return a pair as plain values, without the values of variables."""
    return {"reference": pair.reference, "target": str(pair).removeprefix(f"{pair.reference} for ")}
