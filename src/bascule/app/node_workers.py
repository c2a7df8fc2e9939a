"""``bascule node serve --workers N``: a process that serves nothing itself, and N that do."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from bascule.app.data_dir import published, served_alone
from bascule.app.logs import process_log
from bascule.app.node_serve import Announced, NodeOrder, unused_settings
from bascule.app.node_start import prepare
from bascule.app.serving import Orders
from bascule.app.settings import Settings
from bascule.app.worker_link import SentNode
from bascule.app.workers import Meeting, SharedPort, Workers, logger, orders_for
from bascule.audit.log_lines import say
from bascule.node.leftovers import owned_folder


async def serve_node_workers(
    settings: Settings, order: NodeOrder, announce: Announced, orders: Orders
) -> None:
    """Serve until told to stop, and say on standard error what happens meanwhile."""
    data, count = Path(settings.data_dir), settings.node.workers
    with process_log(settings.log):
        for words in unused_settings(settings):
            say(logger, logging.WARNING, words)
        await asyncio.to_thread(prepare, data)
        with served_alone(data), owned_folder("workers-") as sockets:
            async with SharedPort(settings.server) as port:
                meeting = Meeting(sockets)
                orders_of = orders_for(settings, _sent(order), port, meeting, has_plane=False)
                async with Workers(orders_of, port, orders, count) as workers:
                    with published(data, port.url):
                        announce(port.url, workers.standing)
                        words = f"serving at {port.url}"
                        say(logger, logging.INFO, words, data_dir=str(data), workers=count)
                        await orders.stop.wait()
                        words = "stopping: no new requests, calls under way may end"
                        say(logger, logging.INFO, words)
        say(logger, logging.INFO, "ended")


def _sent(order: NodeOrder) -> SentNode:
    access = order.access
    return SentNode(
        registry=order.registry,
        token=access.token,
        name=order.name,
        ca=_text(access.ca),
        certificate=_text(access.certificate),
        key=_text(access.key),
        insecure=access.insecure,
        private=order.private,
        wait_seconds=order.wait_seconds,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
