"""What others may not write into a file of agents, whatever their role lets them change.

The file is its owner's, who writes what he likes. Over the API nobody puts a credential where all
can see it, and only an administrator gives one a new target.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from bascule.control.registry.masks import MASK, MOVED, refuse_moved_process
from bascule.errors import BasculeError, InvalidRecord
from bascule.manager.config import AgentsConfig, McpServerConfig
from bascule.manager.record import own_words, record_of
from bascule.model.json import JsonObject, is_array
from bascule.policy.pairs import Pair, pairs_of, shown
from bascule.wire.record_rules import refuse_visible_credentials

By = Literal["owner", "administrator", "operator"]


class NotAccepted(BasculeError):
    """An operator's change would send a credential where no administrator sent it."""

    code = "pair_not_accepted"

    def __init__(self, name: str, pairs: Iterable[Pair]) -> None:
        found = sorted(pairs)
        self.details = {"pairs": [{"id": name, **shown(pair)} for pair in found]}
        text = "; ".join(str(pair) for pair in found)
        super().__init__(
            f"a credential goes where no administrator has sent it: server {name!r}: {text}; this "
            "takes an administrator, who makes the change"
        )


def refuse_unfit(
    by: By,
    given: JsonObject,
    new: McpServerConfig,
    old: McpServerConfig | None,
    config: AgentsConfig,
) -> None:
    """Raise InvalidRecord or NotAccepted where this writer may not make this change."""
    if by == "owner":
        return
    record = record_of(new)[0]
    before = None if old is None else record_of(old)[0]
    stdio = {"stdio": {"env": given.get("env")}}
    try:
        refuse_visible_credentials(record, before)
        if by == "operator":
            refuse_moved_process(stdio, record, before)
    except InvalidRecord as error:
        raise InvalidRecord([own_words(problem) for problem in error.problems]) from None
    if by == "operator":
        _refuse_moved_args(given, new, old)
        added = pairs_of(record) - _present(config)
        if added:
            raise NotAccepted(new.name, added)


def _refuse_moved_args(
    given: JsonObject, new: McpServerConfig, old: McpServerConfig | None
) -> None:
    """Raise where hidden arguments would be kept for another program."""
    args = given.get("args")
    kept = args is None or (is_array(args) and MASK in args)
    hidden = old is not None and old.args and old.command != new.command
    if hidden and kept and new.args:
        raise InvalidRecord([f"args: {MOVED}"])


def _present(config: AgentsConfig) -> frozenset[Pair]:
    return frozenset(pair for _, one in config.entries() for pair in pairs_of(record_of(one)[0]))
