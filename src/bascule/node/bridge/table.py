"""The session's table: names to targets, each with all that a call of it needs."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

from msgspec import Struct

from bascule.audit.metrics import ToolStats
from bascule.model.json import JsonObject, is_object
from bascule.model.server import LeakMode
from bascule.node.bridge.limiter import Limiter
from bascule.node.bridge.output_schema import OutputCheck, output_check
from bascule.node.bridge.refusal import leak_blocked, refuse
from bascule.node.ports import Route
from bascule.policy.access import Grant
from bascule.policy.leaks import NOTHING, LeakFinding, Scanner
from bascule.policy.schema import ArgumentValidator, compile_schema
from bascule.wire.strict_json import StrictJsonError, dumps

_MAX_VALIDATORS = 4096


class Accepted(Struct, eq=False, gc=False):
    """Arguments that passed: what is decided on, digested and sent are the same bytes."""

    arguments: JsonObject
    payload: bytes
    leaks: LeakFinding
    #: The ledger's key for digests: a plain hash of small arguments can be guessed.
    _key: bytes
    _digest: str = ""

    @property
    def digest(self) -> str:
        """Return the digest of what is sent; it is made when it is written or compared."""
        if not self._digest:
            mac = _keyed(self._key).copy()
            mac.update(self.payload)
            self._digest = mac.hexdigest()
        return self._digest


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> hmac.HMAC:
    """Return an HMAC that has its key: to give it one for each call takes 10 us."""
    return hmac.new(key, digestmod="sha256")


class Owner(Protocol):
    """Whose table it is: a session."""

    @property
    def session_id(self) -> str: ...

    @property
    def whose(self) -> str: ...

    @property
    def max_tool_output_bytes(self) -> int | None: ...

    @property
    def digest_key(self) -> bytes: ...


class Target:
    """One tool a session may call."""

    __slots__ = (
        "_digest_key", "_validator", "_validators", "grant", "leaks", "limiters",
        "max_output_bytes", "output", "route", "seconds", "server_id", "stats", "tool",
        "unattended",
    )  # fmt: skip

    def __init__(
        self,
        grant: Grant,
        stats: ToolStats,
        validators: dict[str, ArgumentValidator],
        limiters: tuple[Limiter, ...],
        owner: Owner,
    ) -> None:
        self.grant = grant
        budgets, cap = grant.budgets, owner.max_tool_output_bytes
        #: What a call gets where its caller does not ask for less.
        self.seconds = budgets.tool_timeout_ms / 1000
        self.max_output_bytes = budgets.max_tool_output_bytes
        if cap is not None and cap < self.max_output_bytes:
            self.max_output_bytes = cap
        self.route = Route(
            grant.tool.server_id, owner.session_id, grant.tool.name, owner.whose, grant.idempotent
        )
        fixed = grant.approval.fixed
        #: Whether no call of it ever needs approval.
        self.unattended = fixed is not None and fixed.action == "allow"
        self.limiters = limiters
        self.server_id = grant.tool.server_id
        self.tool = grant.tool.name
        self.leaks: LeakMode = grant.record.hygiene.leaks
        self.stats = stats
        #: The check of its results; None when there is nothing to check.
        self.output = output_check(grant.tool, grant.record.hygiene.output_schema, validators)
        self._digest_key = owner.digest_key
        self._validators = validators
        self._validator: ArgumentValidator | None = None

    @property
    def promise(self) -> OutputCheck:
        """Return what its output schema says of results, whether or not these are checked."""
        return self.output or OutputCheck(self.grant.tool, "off", self._validators)

    def accept(self, arguments: Mapping[str, object] | None, scanner: Scanner) -> Accepted:
        """Check arguments against the schema and for leaks, and serialise them once."""
        given: JsonObject = _plain(arguments)
        validator = self._validator or self._compiled()
        if not validator.valid(given):
            raise _invalid(validator.problems(given))
        try:
            payload = dumps(given)
        except StrictJsonError as error:
            raise _invalid([f"arguments: {error}"]) from error
        if self.leaks == "off" or not scanner.suspect(payload):
            return Accepted(given, payload, NOTHING, self._digest_key)
        return self._without_leaks(given, payload, scanner)

    def _without_leaks(self, given: JsonObject, payload: bytes, scanner: Scanner) -> Accepted:
        masked, leaks = scanner.mask_json(given)
        if leaks.total and self.leaks == "block":
            raise leak_blocked(self.server_id, self.tool, f"the arguments ({leaks})")
        if leaks.total:
            given, payload = masked, dumps(masked)
        return Accepted(given, payload, leaks, self._digest_key)

    def _compiled(self) -> ArgumentValidator:
        """Return the validator, compiled once per definition and shared by all sessions."""
        digest = self.grant.tool.digest
        validator = self._validators.get(digest)
        if validator is None:
            if len(self._validators) >= _MAX_VALIDATORS:
                self._validators.clear()
            validator = compile_schema(self.grant.tool.input_schema)
            self._validators[digest] = validator
        self._validator = validator
        return validator


def _plain(arguments: Any) -> Any:
    """Return a dict of any mapping; what is no object at all is refused by the schema."""
    if type(arguments) is dict:
        return arguments  # pyright: ignore[reportUnknownVariableType]
    return dict(arguments or {}) if arguments is None or is_object(arguments) else arguments


def _invalid(problems: list[str]) -> Exception:
    return refuse("mcp_invalid_arguments", "; ".join(problems), details={"problems": problems})
