"""References inside configuration values, parsed.

``${ENV:X}``, ``${ENV:X:-default}`` and ``${X}`` stand anywhere in a value, several per value;
``$$`` is a dollar sign. ``secret://name`` and ``file://path`` stand for a whole value; where only a
reference may stand, a bare name is the name of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

Scheme = Literal["secret", "file"]

#: What every machine sets and nobody hides.
PUBLIC_VARIABLES = frozenset(
    {"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)

_TOKEN = re.compile(r"\$\$|\$\{([^}]*)\}|\$\{")
_BODY = re.compile(r"(?:ENV:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_CREDENTIAL_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|SECRETS|PASSWORD|PASSWD|PASS|PWD|PAT|API_?KEY|APIKEY|ACCESS_?KEY|"
    r"PRIVATE_?KEY|KEY|CREDENTIALS?|AUTH|BEARER|COOKIE)(?:$|_)"
    r"|[A-Z0-9](?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY)(?:$|_)",
    re.IGNORECASE,
)
_CREDENTIAL_VALUE = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{15,}|"
    r"sk-[A-Za-z0-9_-]{16,}|xox[abpr]-[A-Za-z0-9-]{10,}|AKIA[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|"
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.)"
    r"|://[^/\s:@]+:[^/\s@]+@"
    r"|(?:^|[-_?&])(?:token|secret|password|passwd|api[-_]?key|access[-_]?key)=[^&\s]{6,}",
    re.IGNORECASE,
)

#: What a secret may be called, and may stand bare for ``secret://name``.
_SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: Text that nobody would choose for a name: a long run with digits in it, or a UUID.
_MACHINE_MADE = re.compile(
    r"(?<![A-Za-z0-9])(?:(?=[A-Za-z]*[0-9])[A-Za-z0-9]{24,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
    re.IGNORECASE,
)


class Variable(Struct, frozen=True):
    """A reference to one environment variable of the node."""

    name: str
    default: str | None = None


class Template(Struct, frozen=True):
    """A value with its references parsed: literal text and variables, in order."""

    parts: tuple[str | Variable, ...]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the variables this value needs."""
        return tuple(part for part in self.parts if isinstance(part, Variable))

    def resolve(self, lookup: Callable[[str], str | None]) -> str:
        """Return the value; raise KeyError naming the first variable that has no value."""
        return "".join(_value(part, lookup) for part in self.parts)


class Stored(Struct, frozen=True):
    """A whole value that lives elsewhere: in the secret store or in a file."""

    scheme: Scheme
    target: str


def _value(part: str | Variable, lookup: Callable[[str], str | None]) -> str:
    if isinstance(part, str):
        return part
    found = lookup(part.name)
    if found is not None:
        return found
    if part.default is not None:
        return part.default
    raise KeyError(part.name)


def parse_template(text: str) -> Template:
    """Parse a value; raise ValueError where a ``${`` is not a reference."""
    parts: list[str | Variable] = []
    end = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[end : token.start()])
        parts.append(_part(token))
        end = token.end()
    parts.append(text[end:])
    return Template(_joined(parts))


def _part(token: re.Match[str]) -> str | Variable:
    if token[0] == "$$":
        return "$"
    if token[1] is None:
        raise ValueError("'${' without '}' (write '$$' for a dollar sign)")
    body = _BODY.fullmatch(token[1])
    if body is None:
        raise ValueError(
            f"{token[0]!r} is not a reference; expected ${{ENV:NAME}}, ${{ENV:NAME:-default}} "
            "or ${NAME}"
        )
    return Variable(body[1], body[2])


def _joined(parts: list[str | Variable]) -> tuple[str | Variable, ...]:
    """Merge neighbouring literals and drop empty ones, so that equal values are equal."""
    merged: list[str | Variable] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, str) and isinstance(last, str):
            merged[-1] = last + part
        elif part != "":
            merged.append(part)
    return tuple(merged)


def parse_stored(text: str) -> Stored | None:
    """Return what ``secret://name`` or ``file://path`` points at, or None for a plain value."""
    if text.startswith("secret://"):
        return Stored("secret", text.removeprefix("secret://"))
    if text.startswith("file://"):
        return Stored("file", text.removeprefix("file://"))
    return None


def parse_value(text: str) -> Template | Stored:
    """Parse a value of env or headers."""
    return parse_stored(text) or parse_template(text)


def parse_reference(text: str) -> Template | Stored:
    """Parse a value of ``auth_ref`` and its like, where a literal has no place.

    A bare name means ``secret://name``. Raise ValueError, without the text, for anything else:
    it may be the credential itself.
    """
    value = parse_value(text)
    if isinstance(value, Stored) or value.variables:
        return value
    if not is_secret_name(text):
        raise ValueError(
            "must be a reference, not the credential itself: write secret://name, "
            "file:///path or ${ENV:NAME} (a bare name stands for secret://name)"
        )
    return Stored("secret", text)


def is_secret_name(text: str) -> bool:
    """Say whether a text can name a secret; one that may be a credential itself cannot."""
    if _SECRET_NAME.fullmatch(text) is None:
        return False
    return not looks_like_a_credential(text) and _MACHINE_MADE.search(text) is None


def names_a_credential(name: str) -> bool:
    """Say whether a variable's name looks like that of a credential."""
    return _CREDENTIAL_NAME.search(name) is not None


def looks_like_a_credential(text: str) -> bool:
    """Say whether a literal text looks as if it held a credential."""
    return _CREDENTIAL_VALUE.search(text) is not None
