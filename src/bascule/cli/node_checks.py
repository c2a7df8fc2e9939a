"""What a machine must have before it serves a node: a token, its control plane, and rules that fit.

The control plane is asked who the node is, and for its records; nothing of that is kept, and
nothing is started or reached besides it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from bascule.app.node_serve import NodeOrder, node_rules
from bascule.app.settings import Settings
from bascule.cli.findings import Checker, Finding
from bascule.cli.machine_checks import dated
from bascule.client.followed import Welcome
from bascule.client.http import Unreachable
from bascule.client.rpc import NeedsTls, RpcSource
from bascule.clock import SYSTEM_CLOCK, Clock
from bascule.errors import BasculeError
from bascule.model.assignment import Assignment
from bascule.model.snapshot import Snapshot
from bascule.node.assembly import objection
from bascule.outbound.network_variables import withheld
from bascule.outbound.rules import NodeRules

T = TypeVar("T")
_ANSWER_SECONDS = 10.0
#: Tokens end, and what is known grows stale, by the time of this machine.
_APART_SECONDS = 5.0
_FAR_APART_SECONDS = 300.0
#: So many servers are named.
_NAMED = 3
_OTHERS = 0o077

_MAKE_ONE = "make one at the control plane: bascule tokens create --role node --name NAME"
_REACH = (
    "check the address, that the control plane serves gRPC there (bascule registry serve, or up "
    "--grpc; port 7071), and what is between; with TLS, that --ca signed its certificate"
)


async def node_findings(
    settings: Settings, order: NodeOrder, file: Path | None, say: Callable[[str], None]
) -> AsyncGenerator[Finding, None]:
    """Yield what was found of the control plane and the rules; ``file`` has the token, if any."""
    yield _token(file)
    yield _tls(order)
    say(f"asking {order.registry}")
    async with RpcSource(order.registry, order.access) as source:
        try:
            welcome = await _in_time(source.introduction())
            yield _introduced(order, welcome)
            yield _clock(welcome, SYSTEM_CLOCK)
            snapshot = await _in_time(source.snapshot())
        except BasculeError as error:
            yield _refused(error)
            return
    yield _assigned(welcome, snapshot)
    say("comparing the rules with the records")
    rules = node_rules(settings, order)
    yield await rules_finding(rules, snapshot)
    yield way_out(rules)


async def _in_time(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await work
    except TimeoutError:
        raise Unreachable(f"no answer within {_ANSWER_SECONDS:g} s") from None


def _token(file: Path | None) -> Finding:
    told = Checker("token")
    if file is None:
        return told.ok("BASCULE_TOKEN has one")
    if file.stat().st_mode & _OTHERS:
        return told.warning(f"{file}: others may read it", f"chmod 600 {file}")
    return told.ok(f"{file} has one")


def _tls(order: NodeOrder) -> Finding:
    """Look at how the control plane is reached, and at the node's own certificate."""
    told, access = Checker("TLS"), order.access
    if access.ca is None and access.certificate is None:
        if access.insecure:
            words = "the control plane is reached without TLS: the token can be read on the way"
            return told.warning(words, "give --ca FILE, and serve the control plane with TLS")
        return told.ok("none: a control plane on this machine alone")
    try:
        if access.ca is not None:
            ssl.create_default_context(cafile=access.ca)
        if access.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_cert_chain(access.certificate, access.key, password="")
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        mend = "name PEM files that the user who serves can read, and that fit each other"
        return told.failed(f"{access.ca or access.certificate}: {why}", mend)
    if access.certificate is not None:
        return dated(told, access.certificate, access.key or access.certificate, SYSTEM_CLOCK)
    return told.ok(f"whoever {access.ca} signed")


def _introduced(order: NodeOrder, welcome: Welcome) -> Finding:
    told = Checker("control plane")
    if order.name is not None and welcome.node != order.name:
        words = f"by its token this is node {welcome.node!r}, and not {order.name!r}"
        return told.failed(words, f"use the token of {order.name!r}, or leave --name out")
    return told.ok(f"{order.registry} answers: this is node {welcome.node!r}")


def _refused(error: BasculeError) -> Finding:
    words = str(error)
    if isinstance(error, NeedsTls):
        return Checker("TLS").failed(words, "give --ca FILE, or --insecure-registry")
    if error.code == "unauthenticated":
        return Checker("token").failed(words, _MAKE_ONE)
    if error.code == "forbidden":
        mend = f"use a token and a certificate of one node; {_MAKE_ONE}"
        return Checker("token").failed(words, mend)
    if error.code == "already_exists":
        mend = f"stop that one, or give each a token of its own; {_MAKE_ONE}"
        return Checker("control plane").failed(words, mend)
    return Checker("control plane").failed(words, _REACH)


def _clock(welcome: Welcome, clock: Clock) -> Finding:
    """Compare the time here with that at the control plane."""
    told = Checker("clock there")
    if not welcome.now:
        return told.warning("it does not say what time it is", "bring it to this version")
    apart = abs(clock.now() - welcome.now)
    words = f"{apart:.1f} s apart from this machine's"
    mend = "keep both clocks with NTP: tokens end by the time of this machine"
    if apart >= _FAR_APART_SECONDS:
        return told.failed(words, mend)
    return told.ok(words) if apart < _APART_SECONDS else told.warning(words, mend)


def _assigned(welcome: Welcome, snapshot: Snapshot) -> Finding:
    told = Checker("assignment")
    given = Assignment(tasks=welcome.tasks, labels=welcome.labels)
    count = f"{len(snapshot.tasks)} tasks and {len(snapshot.servers)} servers"
    words = f"{given}: {count}"
    if snapshot.tasks:
        return told.ok(words)
    mend = f"assign it something that is there: bascule nodes assign {welcome.node} --task ID"
    return told.warning(words, mend)


async def rules_finding(rules: NodeRules, snapshot: Snapshot) -> Finding:
    """Look whether what records want is allowed here."""
    told = Checker("rules")
    servers = [record for record in snapshot.servers.values() if record.enabled]
    found = {one.server_id: await objection(one, rules, os.environ) for one in servers}
    against = {server: words for server, words in found.items() if words is not None}
    if not against:
        return told.ok(f"all of {len(servers)} servers may be started or reached here")
    named = [f"{server}: {words}" for server, words in [*against.items()][:_NAMED]]
    more = f"; and {len(against) - _NAMED} more" if len(against) > _NAMED else ""
    words = f"{len(against)} of {len(servers)} servers are refused here: {'; '.join(named)}{more}"
    mend = "allow what they need (--allow-executable and others), or assign the node other tasks"
    return (told.failed if len(against) == len(servers) else told.warning)(words, mend)


def way_out(rules: NodeRules) -> Finding:
    """Look whether servers are given this machine's way to the network."""
    told = Checker("way out")
    kept = withheld(os.environ, rules)
    if not kept:
        return told.ok("servers are given the proxies and certificates that this machine names")
    allow = " ".join(f"--allow-variable {name}" for name in kept)
    words = f"servers are not given {', '.join(kept)}: without them packages may not be fetched"
    return told.warning(words, f"allow them, unless they are nothing for servers: {allow}")
