"""What somebody should look at, in words, each with the one thing that helps.

Everything is asked of those who know it already; each reader gets what their role may read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bascule.audit.approval_rows import ApprovalFilter
from bascule.audit.approvals import Approvals
from bascule.audit.metrics import LedgerState
from bascule.auth.identity import Principal
from bascule.auth.tokens import SETUP_ID, Tokens
from bascule.control.registry.service import RegistryService
from bascule.errors import BasculeError
from bascule.model.status import UNWELL, CombinedStatus
from bascule.wire.api.overview import UNSEEN, Attention, NodeShown

#: Of one kind, more than this are not listed or counted.
MOST = 100


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Those who know what needs attention."""

    service: RegistryService
    tokens: Tokens
    approvals: Approvals | None = None
    ledger: LedgerState | None = None
    #: Says what the last load of files left out.
    problems: Callable[[], Sequence[str]] = tuple

    async def attention(
        self, asking: Principal, nodes: Iterable[NodeShown]
    ) -> tuple[Attention, ...]:
        """Return what one may read of all that needs attention, the most urgent first."""
        found = [*self._unwritable()]
        if asking.may("nodes:read"):
            found += _not_following(nodes, self.service.view.revision)
        found += _unwell(await self.service.statuses())
        if asking.may("approvals:read"):
            found += await self._approvals(asking)
        if asking.may("registry:accept"):
            found += _proposals(len(await self.service.proposals()))
        if asking.may("registry:write"):
            found += _left_out(self.problems())
        if asking.may("tokens:write"):
            found += _setup_token({record.id for record in await self.tokens.records()})
        return tuple(found)

    def _unwritable(self) -> Iterator[Attention]:
        """Say what cannot be written, in the words of ``/readyz``."""
        refusal = self.service.refusal
        if refusal is not None:
            words = f"the registry cannot be written to: {refusal}"
            yield _trouble("registry", words)
        trouble = None if self.ledger is None else self.ledger.trouble
        if trouble is not None:
            yield _trouble("ledger", trouble)

    async def _approvals(self, asking: Principal) -> list[Attention]:
        if self.approvals is None:
            return []
        wanted = ApprovalFilter(states=("pending",), tasks=asking.tasks, limit=MOST + 1)
        try:
            count = len(await self.approvals.listing(wanted))
        except BasculeError as error:  # the rest is worth knowing all the more
            return [_trouble("ledger", str(error))]
        words = f"{_counted(count, 'call waits', 'calls wait')} for somebody's decision"
        return [
            Attention(
                code="approvals_pending",
                subject="approvals",
                message=words,
                action="open_approvals",
            )
        ][:count]


def _trouble(subject: str, words: str) -> Attention:
    return Attention(
        code="ledger_unwritable" if subject == "ledger" else "registry_unwritable",
        subject=subject,
        message=words,
        action="look_again",
    )


_SINCE = {"silent": "has not reported since", "lost": "is lost: its stream was last open at"}


def _not_following(nodes: Iterable[NodeShown], revision: int) -> Iterator[Attention]:
    for node in nodes:
        if node.state in {"ok", UNSEEN}:
            continue
        words = f"node {node.name} does not follow the registry: it serves revision "
        words += f"{node.revision}, the newest is {revision}"
        words += "" if node.reason is None else f" ({node.reason})"
        if node.reason is not None and node.revision == revision:
            words = f"node {node.name} is {node.state}: {node.reason}"
        if node.state in _SINCE:
            words = f"node {node.name} {_SINCE[node.state]} {node.last_seen}"
        yield Attention(
            code="node_not_following", subject=node.name, message=words, action="open_nodes"
        )


def _unwell(statuses: Mapping[str, CombinedStatus]) -> list[Attention]:
    found = [(id, status) for id, status in statuses.items() if status.state in UNWELL]
    return [
        Attention(
            code="server_degraded" if status.state == "degraded" else "server_down",
            subject=id,
            message=f"{id} is {status.state}"
            + (f": {status.last_error}" if status.last_error else ""),
            action="test_server",
        )
        for id, status in found[:MOST]
    ]


def _proposals(count: int) -> Iterator[Attention]:
    if count:
        yield Attention(
            code="proposals_waiting",
            subject="proposals",
            message=f"{_counted(count, 'change waits', 'changes wait')} for an administrator",
            action="open_proposals",
        )


def _left_out(problems: Sequence[str]) -> Iterator[Attention]:
    for words in problems[:MOST]:
        yield Attention(code="records_left_out", subject="files", message=words, action="rescan")


def _setup_token(tokens: set[str]) -> Iterator[Attention]:
    if SETUP_ID in tokens:
        yield Attention(
            code="setup_token",
            subject=SETUP_ID,
            message="the setup token is still valid; the first administrator's token ends it",
            action="make_token",
        )


def _counted(count: int, one: str, many: str) -> str:
    if count > MOST:
        return f"more than {MOST} {many}"
    return f"{count} {one if count == 1 else many}"
