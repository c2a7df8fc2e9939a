"""Where the node may connect to: decided on the resolved address, and that address is used.

A node reaches the public internet; anything else must be listed in ``NodeRules.egress``, and at a
node whose rules are closed that too. What
``ipaddress`` calls global is not enough: it lets metadata services and addresses through that
carry a private one inside, so the table here is our own. ``http`` asks before each connection.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Literal, TypeAlias

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.pattern import Pattern
from bascule.outbound.references import permit
from bascule.outbound.rules import NodeRules
from bascule.outbound.url import Url

Address: TypeAlias = IPv4Address | IPv6Address
AddressClass = Literal[
    "loopback",
    "private",
    "shared",
    "link-local",
    "metadata",
    "unspecified",
    "multicast",
    "documentation",
    "reserved",
]

# The first network that holds an address decides.
_CLASSES: tuple[tuple[AddressClass, tuple[str, ...]], ...] = (
    (
        "metadata",
        (
            "169.254.169.254",  # most clouds
            "169.254.170.2",  # containers on AWS
            "169.254.170.23",
            "192.0.0.192",  # Oracle
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure
            "fd00:ec2::254",  # AWS
            "fd00:ec2::23",
            "fd20:ce::254",  # Google
        ),
    ),
    ("loopback", ("127.0.0.0/8", "::1")),
    ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")),
    ("private", ("64:ff9b:1::/48",)),  # a translation that is local to a site
    ("shared", ("100.64.0.0/10",)),  # between a provider and its customers (CGNAT)
    ("link-local", ("169.254.0.0/16", "fe80::/10")),
    ("unspecified", ("0.0.0.0/8", "::")),  # 0.0.0.0 reaches this very machine
    ("multicast", ("224.0.0.0/4", "ff00::/8")),
    (
        "documentation",
        ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
    ),
    # Protocol assignments, the 6to4 relay, benchmarks, what was never given out.
    ("reserved", ("192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4")),
    ("reserved", ("2001::/23",)),
)
_TABLE: tuple[tuple[IPv4Network | IPv6Network, AddressClass], ...] = tuple(
    (ip_network(text), name) for name, texts in _CLASSES for text in texts
)
_GLOBAL_V6 = IPv6Network("2000::/3")
# IPv6 addresses that a translator turns into the IPv4 address in their last four bytes.
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("::ffff:0:0:0/96"))

# A listed name vouches for these. For the rest the address itself must be listed: whoever holds
# the name's DNS must not be able to point it at a metadata service.
_OPENED_BY_NAME = frozenset[AddressClass]({"loopback", "private", "shared"})
_NUMERIC_PATTERN = re.compile(r"[0-9.:*?/]*[*?][0-9.:*?/]*")
_HOST_ENTRY = re.compile(r"[A-Za-z0-9_.*?-]+")


def classify(address: Address) -> AddressClass | None:
    """Return the class of an address that needs to be listed, or None for a public one."""
    inner = _carried(address)
    if inner is not None:
        return classify(inner)
    for network, name in _TABLE:
        if address in network:
            return name
    return "reserved" if isinstance(address, IPv6Address) and address not in _GLOBAL_V6 else None


def _carried(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 one stands for, where there is one."""
    if isinstance(address, IPv4Address):
        return None
    if any(address in network for network in _TRANSLATED):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


class EgressRules:
    """What may be reached, asked before each connection."""

    def __init__(self, entries: Iterable[str] = (), *, closed: bool = False) -> None:
        """Allow what is public besides the entries; ``closed``: the entries alone.

        There ``*`` is all that is public.
        """
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: list[Pattern] = []
        self._public = not closed
        self._closed = closed
        for entry in entries:
            self._add(entry.strip())

    @classmethod
    def under(cls, rules: NodeRules) -> EgressRules:
        """Return what a node's rules leave."""
        return cls(rules.egress, closed=rules.closed_to_others)

    def _add(self, entry: str) -> None:
        if self._closed and entry == "*":
            self._public = True
            return
        try:
            self._networks.append(_network(entry))
        except ValueError:
            self._names.append(_name_pattern(entry))

    def check_url(self, url: Url, *, insecure: bool = False) -> None:
        """Refuse a URL for what can be told before its host is resolved.

        ``insecure`` allows plain http to other machines, as a record may.
        """
        host = _plain(url.host)
        literal = _literal(host)
        if literal is not None:
            self.check(host, literal)
        elif not self._networks and not _is_local_name(host):  # no address of its would be listed
            self.check_name(host)
        if url.scheme == "http" and not insecure and not names_loopback(host):
            raise LaunchDenied(
                f"{host} would be reached by plain http, which others can read and change; use "
                "https, or set insecure = true in the record's [http] table"
            )

    def check_name(self, host: str) -> None:
        """Refuse a name whose addresses nobody here can tell, unless it is listed or public."""
        if not self._public and not self._names_host(_plain(host)):
            raise self._unlisted(host)

    def check_addresses(self, host: str, addresses: Iterable[str]) -> None:
        """Refuse a host if one of its addresses is refused: which is used must not be luck."""
        for text in addresses:
            address = _literal_or_none(text)
            if address is None:
                raise socket.gaierror(None, f"{host} was resolved to something that is no address")
            self.check(host, address)

    def check(self, host: str, address: Address) -> None:
        """Refuse an address that a host, perhaps written as this very address, stands for."""
        kind = classify(address)
        if _is_local_name(host) and kind != "loopback":
            raise LaunchDenied(f"{host} leads to {address}, which is another machine")
        if self._allows(_plain(host), address, kind):
            return
        if kind is None:
            raise self._unlisted(host)
        plain = str(_without_scope(address))
        via = "" if _literal_or_none(_plain(host)) == address else f", where {host} leads"
        article = "an" if kind == "unspecified" else "a"
        raise LaunchDenied(
            f"this node does not connect to {plain}{via}: it is {article} {kind} address; "
            + permit("egress", plain, setting="egress")
        )

    def _unlisted(self, host: str) -> LaunchDenied:
        return LaunchDenied(
            f"this node connects to what it lists and to nothing else, and {host} is not listed; "
            + permit("egress", _plain(host), setting="egress")
        )

    def _names_host(self, host: str) -> bool:
        return any(name.matches("node", host) for name in self._names)

    def _allows(self, host: str, address: Address, kind: AddressClass | None) -> bool:
        if kind is None and self._public:
            return True
        if kind == "loopback" and names_loopback(host) and not self._closed:
            return True
        if (kind is None or kind in _OPENED_BY_NAME) and self._names_host(host):
            return True
        spellings = (address, _carried(address) or address)
        return any(spelling in network for network in self._networks for spelling in spellings)


def _network(entry: str) -> IPv4Network | IPv6Network:
    return ip_network(entry.removeprefix("[").removesuffix("]"), strict=False)


def _name_pattern(entry: str) -> Pattern:
    """Return the pattern of a host name; ``node/`` stands where patterns name a server."""
    try:
        name = entry.rstrip(".").lower().encode("idna").decode()
    except UnicodeError:
        name = ""
    if not _HOST_ENTRY.fullmatch(name) or (_NUMERIC_PATTERN.fullmatch(name) and name != "*"):
        raise LaunchDenied(
            f"[node] egress: {entry!r} is not a host name, an IP address or a network; write "
            "them as api.example.com, *.example.com, 10.1.2.3 or 10.1.0.0/16"
        )
    return Pattern(f"node/{name}")


def _plain(host: str) -> str:
    return host.rstrip(".").lower()


def _is_local_name(host: str) -> bool:
    return (plain := _plain(host)) == "localhost" or plain.endswith(".localhost")


def names_loopback(host: str) -> bool:
    """Say whether a host is loopback as it is written, before anything is resolved."""
    literal = _literal_or_none(host)
    if literal is None:
        return _is_local_name(host)
    return literal.is_loopback and _carried(literal) is None


def _literal_or_none(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _literal(host: str) -> Address | None:
    """Return the address a host is written as, refusing forms that only some readers know."""
    address = _literal_or_none(host)
    if address is not None:
        return address
    try:
        odd = IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
    raise LaunchDenied(f"{host} is an unusual way to write {odd}; write it as {odd}")


def _without_scope(address: Address) -> Address:
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) else address


def parse_url(text: str, field: str) -> Url:
    """Return a URL, or say what is wrong without repeating it: it may hold a secret."""
    try:
        url = Url.parse(text.strip())
    except ValueError:
        raise ServerUnavailable(f"{field}: is not a URL such as https://host/path") from None
    if url.has_user:
        raise ServerUnavailable(
            f"{field}: holds a user name or password, which shows in logs; use http.auth"
        )
    return url
