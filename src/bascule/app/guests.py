"""WASM programs, joined with what they reach: a bridge under a task, models, and their limits.

A program reaches what this process has (``here``), or what a server elsewhere serves (``served``).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from bascule.control.registry.masks import MASK
from bascule.demo.rehearsal import REHEARSAL, Rehearsal
from bascule.doors.hostcalls.engine import Engines
from bascule.doors.hostcalls.executables import plain_values
from bascule.doors.hostcalls.guest import Exit
from bascule.doors.hostcalls.host import GuestLimits, Host
from bascule.doors.hostcalls.module_cache import MODULES_FOLDER, ModuleCache
from bascule.doors.hostcalls.program import MAX_MODULE_BYTES, BadModule
from bascule.errors import BasculeError
from bascule.loop.backends import Backends, Chosen
from bascule.loop.http_backend import HttpUpstream
from bascule.model.backend import BackendRecord
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import Executable, TaskBudgets
from bascule.node.assembly import Bridge
from bascule.node.bridge.opening import Opening
from bascule.node.contract import AnyBridge
from bascule.node.homes import OWN_CACHE, user_cache
from bascule.outbound.references import MappedSecrets
from bascule.outbound.rules import NodeRules
from bascule.outbound.tls import tls_context
from bascule.wire.narrowing import headers_of, user_header

#: What the server that a guest is connected to is called among backends.
SERVER = "bascule"
_NO_TASK = Opening()
_RULES = NodeRules()


class NoModule(BasculeError):
    """There is no module to run, or it is not the one that was meant."""

    code = "bad_module"


class HiddenValue(BasculeError):
    """A variable of a task's executable that cannot be read here."""

    code = "bad_module"


class Program:
    """A module that is compiled and ready to run within limits; raise BadModule if it cannot."""

    def __init__(
        self, content: bytes, limits: GuestLimits, cache: ModuleCache | None = None
    ) -> None:
        self._engine = Engines(cache).of(limits)
        self._module = self._engine.load(content)
        self._module.check_memory(limits)

    async def run(self, host: Host) -> Exit:
        """Run it to its end."""
        return await self._engine.run(self._module, host)


def user_modules(environ: Mapping[str, str]) -> ModuleCache | None:
    """Return where the user's compiled modules are kept; None for a user without a cache folder."""
    cache = user_cache(environ)
    return None if cache is None else ModuleCache(cache / OWN_CACHE / MODULES_FOLDER)


def read_module(path: Path, checksum: str | None = None) -> bytes:
    """Return a module's bytes, those that were checked; raise NoModule."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_MODULE_BYTES + 1)
    except OSError as error:
        raise NoModule(f"{path}: {error.strerror}") from None
    if len(content) > MAX_MODULE_BYTES:
        most = MAX_MODULE_BYTES // (1024 * 1024)
        raise BadModule(f"{path}: the module is larger than the {most} MiB that are taken")
    found = hashlib.sha256(content).hexdigest()
    if checksum is not None and found != checksum:
        raise NoModule(
            f"{path}: not the module that the task names: its SHA-256 is {found}, "
            f"executable.checksum_sha256 is {checksum}"
        )
    return content


def variables_of(executable: Executable, given: frozenset[str]) -> dict[str, str]:
    """Return the variables of a task's executable but for those that are ``given`` otherwise.

    Raise HiddenValue for one that is masked or a reference: nothing of this machine goes into a
    guest that nobody named on the command line.
    """
    wanted = {name: text for name, text in executable.env.items() if name not in given}
    values, references = plain_values(wanted)
    hidden = [name for name, text in wanted.items() if text == MASK or name in references]
    if hidden:
        options = " ".join(f"--env {name}=VALUE" for name in hidden)
        raise HiddenValue(
            f"executable.env: {', '.join(hidden)}: hidden or a reference, so it cannot be read "
            f"here; give it: {options}"
        )
    return values


@asynccontextmanager
async def here(
    host: Host,
    bridge: Bridge | None = None,
    opening: Opening = _NO_TASK,
    rules: NodeRules = _RULES,
) -> AsyncGenerator[Host]:
    """Give a guest what this process has; raise SessionRefused.

    The models are those of the bridge's records and ``rehearsal``, the tools those of the opening;
    without a bridge there are none.
    """
    backends = Backends(
        lambda: Snapshot() if bridge is None else bridge.snapshot,
        rules=rules,
        built_in={REHEARSAL: Rehearsal()},
    )
    given = replace(host, models=backends, bridge=bridge, opening=opening)
    try:
        if bridge is None:
            yield given
        else:
            async with bridge:
                settings = host.settings.of_task(await _budgets(bridge, opening))
                yield replace(given, metrics=bridge.metrics, settings=settings)
    finally:
        await backends.close()


@asynccontextmanager
async def served(
    host: Host,
    opening: Opening,
    *,
    url: str,
    token: str,
    tls_ca: str | None = None,
    insecure: bool = False,
) -> AsyncGenerator[Host]:
    """Give a guest what a server elsewhere serves to this token; raise SessionRefused.

    The loop runs here, so the server is asked for single turns: with its own tools off.
    """
    upstream = HttpUpstream(
        BackendRecord(
            name=SERVER,
            base_url=f"{url}/v1",
            key_ref="secret://token",
            headers={
                **headers_of(SessionRequest(enabled=False)),
                **user_header(opening.person),
            },
            insecure=insecure,
        ),
        rules=NodeRules(egress=(urlsplit(url).hostname or "",)),
        secrets=MappedSecrets({"token": token}),
        tls=None if tls_ca is None else tls_context(tls_ca),
    )
    bridge = Bridge.connect(url, token=token, tls_ca=tls_ca, insecure=insecure)
    try:
        async with bridge:
            settings = host.settings.of_task(await _budgets(bridge, opening))
            models = _ServedModels(upstream)
            yield replace(host, bridge=bridge, opening=opening, models=models, settings=settings)
    finally:
        await upstream.close()


class _ServedModels:
    """The models of a server: which there are, it says itself when it is asked."""

    def __init__(self, upstream: HttpUpstream) -> None:
        self._upstream = upstream

    async def choose(self, model: str) -> Chosen:
        return Chosen(self._upstream, model)


async def _budgets(bridge: AnyBridge, opening: Opening) -> TaskBudgets:
    """Return the task's budgets, which starts nothing; raise SessionRefused.

    It is raised before anything runs: the guest itself would only see a number.
    """
    session = bridge.open_session(opening)
    try:
        return await session.budgets()
    finally:
        await session.close()
