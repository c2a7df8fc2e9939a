"""The variables that say how a machine reaches the network: proxies and certificates."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from bascule.outbound.rules import NodeRules

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
OUTWARD = (*_CERTIFICATES, *_PROXIES, *(name.lower() for name in (*_CERTIFICATES, *_PROXIES)))


def withheld(environ: Mapping[str, str], rules: NodeRules) -> list[str]:
    """Return those that are set, and that the rules keep from servers."""
    return [name for name in OUTWARD if name in environ and not rules.allows_variable(name)]


def through(proxy: str) -> dict[str, str]:
    """Return the variables that lead programs to a proxy, for everything but the loopback."""
    values = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": "localhost,127.0.0.1,::1"}
    lower = {name.lower(): value for name, value in values.items()}
    return values | lower | {"NODE_USE_ENV_PROXY": "1"}


def credentials_in(value: str) -> frozenset[str]:
    """Return what must not be shown of an address such as ``http://ann:secret@proxy:3128``.

    The address whole, its user and password together, and the password as it is written and as
    it is meant.
    """
    user_info, at, _ = value.partition("://")[2].partition("/")[0].rpartition("@")
    if "://" not in value:  # proxies are written without a scheme, too
        user_info, at, _ = value.partition("/")[0].rpartition("@")
    if not at or not user_info:
        return frozenset()
    password = user_info.partition(":")[2] or user_info  # a token alone stands before the @
    return frozenset({value, user_info, password, unquote(password), unquote(user_info)})
