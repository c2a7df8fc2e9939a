"""Which proxy a request goes through: what the node's operator names, or the environment.

The environment counts only where ``node.proxy`` says so: a variable that happens to be set must not
redirect what agents send.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from bascule.errors import ServerUnavailable
from bascule.outbound.egress import names_loopback
from bascule.outbound.http import Proxy
from bascule.outbound.rules import FROM_ENVIRONMENT, NodeRules
from bascule.outbound.url import Url


def proxy_for(url: Url, rules: NodeRules, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a URL; this machine itself is never reached through one."""
    if rules.proxy is None or names_loopback(url.host):
        return None
    if rules.proxy != FROM_ENVIRONMENT:
        return parse_proxy(rules.proxy, "node.proxy")
    name = f"{url.scheme.upper()}_PROXY"
    text = environ.get(name) or environ.get(name.lower())
    spared = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if not text or any(_spares(entry.strip(), url) for entry in spared.split(",")):
        return None
    return parse_proxy(text, name)


def parse_proxy(text: str, field: str) -> Proxy:
    """Return a proxy, or say what is wrong without repeating it: it may hold a password."""
    text = text.strip()
    try:
        url = Url.parse(text if "://" in text else f"http://{text}")
    except ValueError:
        url = None
    if url is None or url.scheme != "http":
        raise ServerUnavailable(f"{field}: is not a proxy such as http://proxy.example:3128")
    return Proxy(url, _authorization(text))


def _authorization(text: str) -> str | None:
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _spares(entry: str, url: Url) -> bool:
    """Say whether an entry of NO_PROXY covers a URL: a name and all below it, or an address."""
    if entry == "*":
        return True
    name, _, port = entry.rpartition(":")
    if port.isdigit() and ":" not in name:
        if int(port) != url.port:
            return False
        entry = name
    with suppress(ValueError):
        return ip_address(url.host) in ip_network(entry, strict=False)
    name = entry.removeprefix("*").strip(".").lower()
    host = url.host.rstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))
