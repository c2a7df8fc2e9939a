"""Model-facing tool names: ``mcp__<server>__<tool>``, a pure function of server and tool.

A name that is too long, has an illegal character or could be read two ways (``__``, leading or
trailing ``_`` at a joint) gets a hash suffix behind ``__0``, and a tool that itself looks like such
a suffix gets one too; so the two kinds never meet.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache

MAX_NAME_LENGTH = 64
MAX_NAMESPACE_LENGTH = 40
_HASH_LENGTH = 12
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_PLAIN_PART = re.compile(r"(?!_)(?!.*__)[A-Za-z0-9_-]+(?<!_)")
_PLAIN_TOOL = re.compile(r"(?!_)(?!.*__)(?!0[a-z2-7]{12}\Z)[A-Za-z0-9_-]+")


def model_name(namespace: str, tool: str) -> str:
    """Return the name a model sees for a tool in a namespace (``mcp.fs`` gives ``mcp__fs__``)."""
    plain = _prefix(namespace) + tool
    if len(plain) <= MAX_NAME_LENGTH and _is_plain(namespace) and _PLAIN_TOOL.fullmatch(tool):
        return plain
    return _hashed(namespace, tool)


@lru_cache(maxsize=1024)
def _prefix(namespace: str) -> str:
    return namespace.replace(".", "__") + "__"


@lru_cache(maxsize=1024)
def _is_plain(namespace: str) -> bool:
    return all(_PLAIN_PART.fullmatch(part) for part in namespace.split("."))


def _hashed(namespace: str, tool: str) -> str:
    suffix = _suffix(namespace, tool)
    readable = _ILLEGAL.sub("_", _prefix(namespace) + tool)
    return readable[: MAX_NAME_LENGTH - len(suffix)] + suffix


def _suffix(namespace: str, tool: str) -> str:
    digest = hashlib.sha256(f"{namespace}\0{tool}".encode("utf-8", "surrogatepass")).digest()
    return "__0" + base64.b32encode(digest).decode("ascii")[:_HASH_LENGTH].lower()


def door_name(prefix: str, tool: str) -> str:
    """Return the name a Python door shows: ``<prefix>_<tool>``, or one with a hash.

    Two pairs may share such a name (``a`` with ``b_c``, ``a_b`` with ``c``): a door that shows
    both must refuse, or use ``hashed_door_name`` for both.
    """
    plain = f"{prefix}_{tool}"
    if len(plain) <= MAX_NAME_LENGTH and not _ILLEGAL.search(plain):
        return plain
    return hashed_door_name(prefix, tool)


def hashed_door_name(prefix: str, tool: str) -> str:
    """Return a Python door's name that no other pair of prefix and tool has."""
    suffix = _suffix(prefix, tool)
    readable = _ILLEGAL.sub("_", f"{prefix}_{tool}")
    return readable[: MAX_NAME_LENGTH - len(suffix)] + suffix


def prefixes(server_id: str, namespace: str) -> tuple[str, ...]:
    """Return what a name that says its server may begin with."""
    dotted = f"{namespace}."
    return (_prefix(namespace), dotted, f"mcp.{server_id}.", f"{server_id}/", f"{server_id}.")


def spellings(server_id: str, namespace: str, tool: str) -> tuple[str, ...]:
    """Return the other forms a caller may write: dotted and slashed."""
    dotted = (f"{namespace}.{tool}", f"mcp.{server_id}.{tool}", f"{server_id}.{tool}")
    return (*dotted, f"{server_id}/{tool}")
