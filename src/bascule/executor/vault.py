"""Credentials that a program wrote into an executor's configuration itself.

A record refers to a credential and never holds one, so such a value is kept here under a name, and
the record has that name. Below: ``bascule.model.reference``. Above: ``config.py`` makes records,
``mcp.py`` gives this to the bridge as where secrets are.
"""

from __future__ import annotations

from bascule.model.reference import Stored, parse_value


class Vault:
    """The literal credentials of one executor, by the names that its records use for them."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def reference(self, text: str) -> str:
        """Return what stands for a credential in a record: a reference as it is, or a new name."""
        try:
            value = parse_value(text)
        except ValueError:
            return text  # the validator says what is wrong
        if not text or isinstance(value, Stored) or value.variables:
            return text
        name = f"executor-{len(self._values)}"
        self._values[name] = value.resolve(lambda _: None)
        return f"secret://{name}"

    async def secret(self, name: str) -> str:
        """Return a credential; raise KeyError when there is none of that name."""
        return self._values[name]
