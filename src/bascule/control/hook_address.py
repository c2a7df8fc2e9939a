"""Where the approval hook is: https, or plain http to a local address that the node may reach."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from bascule.errors import InvalidRecord, LaunchDenied
from bascule.outbound.egress import EgressRules, classify, names_loopback
from bascule.outbound.url import Url

FIELD = "approvals.hook_url"


def hook_address(text: str, egress: Iterable[str]) -> Url:
    """Return the hook's address; raise InvalidRecord, which does not repeat it."""
    try:
        url = Url.parse(text.strip())
    except ValueError:
        raise InvalidRecord([f"{FIELD}: is not a URL such as https://host/path"]) from None
    problem = _problem(url, egress)
    if problem is not None:
        raise InvalidRecord([f"{FIELD}: {problem}"])
    return url


def _problem(url: Url, egress: Iterable[str]) -> str | None:
    """Say what can be told to be wrong before the host is resolved."""
    if url.has_user:
        return "holds a user name or password; leave it out: what is sent is signed"
    if url.scheme == "http" and not _is_local(url.host):
        return (
            "plain http, which others can read and change, goes only to a local address, written "
            "as one: http://127.0.0.1:8080/ask, or http://10.1.2.3/ask where node.egress lists "
            "10.1.2.3; use https"
        )
    try:
        EgressRules(egress).check_url(url, insecure=True)
    except LaunchDenied as error:
        return str(error)
    return None


def _is_local(host: str) -> bool:
    """Say whether a host is local as it is written: a name may lead elsewhere tomorrow."""
    if names_loopback(host):
        return True
    try:
        return classify(ip_address(host)) is not None
    except ValueError:
        return False
