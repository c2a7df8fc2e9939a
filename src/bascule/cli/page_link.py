"""The address of the admin page, with the code that opens it."""

from __future__ import annotations

from bascule.wire.api.addresses import PAGE

#: A process that listens everywhere is asked here.
_EVERYWHERE = {"://0.0.0.0:": "://127.0.0.1:", "://[::]:": "://[::1]:"}


def here(url: str) -> str:
    """Return where this machine finds a process that may listen everywhere."""
    for everywhere, local in _EVERYWHERE.items():
        url = url.replace(everywhere, local)
    return url


def page_link(url: str, code: str) -> str:
    """Return a link; browsers send what is behind its ``#`` to nobody."""
    return f"{here(url)}{PAGE}#code={code}"
