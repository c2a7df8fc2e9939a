"""What a node's rules have against a server, found out without starting or reaching it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bascule.errors import BasculeError
from bascule.model.secret_use import SecretUse, server_use
from bascule.model.server import Http, ServerRecord
from bascule.node.pool.launch import resolve_launch
from bascule.outbound.egress import EgressRules, parse_url
from bascule.outbound.headers import read_headers
from bascule.outbound.references import Reading
from bascule.outbound.rules import NodeRules


class _AnySecret:
    """Has something for every name: whether it may be had is the control plane's to say."""

    async def secret(self, name: str, use: SecretUse) -> str:
        del use
        return name


async def objection(
    record: ServerRecord, rules: NodeRules, environ: Mapping[str, str]
) -> str | None:
    """Say why a server would not be started or reached here, if so."""
    reading = Reading(rules, environ, _AnySecret(), server_use(record))
    try:
        if record.http is not None:
            await _reached(record.http, reading)
        else:
            with TemporaryDirectory() as folder:
                await resolve_launch(record, reading, Path(folder))
    except BasculeError as error:
        return str(error)
    return None


async def _reached(http: Http, reading: Reading) -> None:
    url = parse_url(reading.text(http.url, "http.url"), "http.url")
    EgressRules.under(reading.rules).check_url(url, insecure=http.insecure)
    await read_headers(http.headers, "http.headers", reading)
