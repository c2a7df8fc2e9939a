"""TLS contexts: whom a client trusts, and which certificate it presents."""

from __future__ import annotations

import asyncio
import ssl

from msgspec import Struct

from bascule.errors import ServerUnavailable
from bascule.model.server import Tls
from bascule.outbound.references import Reading


class Trust(Struct, frozen=True):
    """TLS for the server itself, and for a token endpoint that stands elsewhere.

    None is what the machine trusts: one context, made once, serves all.
    """

    server: ssl.SSLContext | None = None
    elsewhere: ssl.SSLContext | None = None


def tls_context(ca: str | None) -> ssl.SSLContext:
    """Return a context that trusts a file of certificates, or what the machine trusts.

    Raises OSError, which an SSLError is as well, for a file that holds none.
    """
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["http/1.1"])
    return context


async def read_tls(tls: Tls | None, reading: Reading) -> Trust:
    """Read the certificates of a record's ``[http.tls]``."""
    if tls is None:
        return Trust()
    ca = await _path(tls.ca, "http.tls.ca", reading)
    certificate = await _path(tls.client_certificate, "http.tls.client_certificate", reading)
    key = await _path(tls.client_key, "http.tls.client_key", reading)
    if key is not None and certificate is None:
        raise ServerUnavailable("http.tls.client_key: needs a client_certificate beside it")
    return await asyncio.to_thread(_trust, ca, certificate, key)


async def _path(text: str | None, field: str, reading: Reading) -> str | None:
    return None if text is None else await reading.path(text, field)


def _trust(ca: str | None, certificate: str | None, key: str | None) -> Trust:
    """Make the contexts. A record's CA is all its server is checked against; elsewhere it adds."""
    try:
        server = tls_context(ca)
    except OSError:
        raise ServerUnavailable(f"http.tls.ca: {ca} holds no certificate") from None
    elsewhere = tls_context(None)
    if ca is not None:
        elsewhere.load_verify_locations(ca)
    if certificate is not None:
        _present(server, certificate, key)
    return Trust(server, elsewhere)


def _present(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    """Load the client's certificate; a locked key must not ask for its password at a terminal."""
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError:
        raise ServerUnavailable(
            f"http.tls: {certificate} and its key cannot be used: they must be PEM, belong "
            "together, and the key must have no password"
        ) from None
