"""The engine, its linker and the modules it has compiled: made once, shared by all guests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from wasmtime import (
    Caller,
    Config,
    Engine,
    FuncType,
    InstancePre,
    Linker,
    Module,
    ValType,
    WasmtimeError,
)

from bascule.doors.hostcalls import basics, chat, readiness, tools, wasi
from bascule.doors.hostcalls.abi import ABSENT, IMPORTS, MODULES, Errno, Fault
from bascule.doors.hostcalls.crossing import Ended
from bascule.doors.hostcalls.epochs import Ticker
from bascule.doors.hostcalls.guest import Exit, Guest, current
from bascule.doors.hostcalls.host import Host
from bascule.errors import BasculeError

logger = logging.getLogger(__name__)

MAX_MODULE_BYTES: Final = 64 * 1024 * 1024
_CORE: Final = b"\0asm\x01\0\0\0"
_COMPONENT: Final = b"\0asm\x0d\0\x01\0"
_TYPES: Final = {"i": ValType.i32, "l": ValType.i64}
#: A host call: the guest and its numbers in, a number or nothing out.
Hostcall: TypeAlias = Callable[..., int | None]

CALLS: Mapping[str, Hostcall] = {
    "time_now_ms": basics.time_now_ms,
    "wall_time_s": basics.wall_time_s,
    "random_i64": basics.random_i64,
    "sleep_ms": basics.sleep_ms,
    "log": basics.log,
    "cchat_create": chat.cchat_create,
    "cchat_write_msg": chat.cchat_write_msg,
    "cchat_write_fn": chat.cchat_write_fn,
    "cchat_ctl": chat.cchat_ctl,
    "cchat_send": chat.cchat_send,
    "cchat_recv": chat.cchat_recv,
    "cchat_close": chat.cchat_close,
    "mcp_open": tools.mcp_open,
    "mcp_list_tools": tools.mcp_list_tools,
    "mcp_call_tool": tools.mcp_call_tool,
    "mcp_close": tools.mcp_close,
    "mcp_registry_list": tools.mcp_registry_list,
    "mcp_registry_get": tools.mcp_registry_get,
    "spear_epoll_create": readiness.spear_epoll_create,
    "spear_epoll_ctl": readiness.spear_epoll_ctl,
    "spear_epoll_wait": readiness.spear_epoll_wait,
    "spear_epoll_close": readiness.spear_epoll_close,
    "spear_fd_ctl": readiness.spear_fd_ctl,
}


class BadModule(BasculeError):
    """A module that cannot be run here, and why."""

    code = "bad_module"


class GuestEngine:
    """Compiles modules and runs them."""

    def __init__(self, *, fuel: bool = False) -> None:
        self._engine = Engine(_config(fuel=fuel))
        self._linker = _linker(self._engine)
        self._ticker = Ticker(self._engine)

    def load(self, content: bytes) -> InstancePre:
        """Compile a module; raise BadModule for what is none, or needs what there is not."""
        _check_form(content)
        try:
            module = Module(self._engine, content)
        except WasmtimeError as error:
            raise BadModule(f"the module is not valid: {_first_line(error)}") from None
        _check_imports(module)
        return self._linker.instantiate_pre(module)

    async def run(self, program: InstancePre, host: Host) -> Exit:
        """Run a guest to its end."""
        with self._ticker.running():
            return await Guest(self._engine, program, host).run()


def _config(*, fuel: bool) -> Config:
    config = Config()
    config.epoch_interruption = True
    config.consume_fuel = fuel
    config.wasm_threads = False  # atomic waits end by no epoch
    config.wasm_memory64 = False
    config.wasm_multi_memory = False
    return config


def _linker(engine: Engine) -> Linker:
    linker = Linker(engine)
    linker.define_wasi()
    linker.allow_shadowing = True
    for name, letters in wasi.IMPORTS.items():
        call = _guarded(wasi.CALLS[name], wasi.EIO)
        linker.define_func(wasi.MODULE, name, _type(letters), call, access_caller=True)
    for name, letters in {**IMPORTS, **ABSENT}.items():
        call = _guarded(CALLS.get(name, _absent), None if letters.endswith("-") else -Errno.EIO)
        for module in MODULES:
            linker.define_func(module, name, _type(letters), call, access_caller=True)
    return linker


def _type(letters: str) -> FuncType:
    kinds = [_TYPES[letter]() for letter in letters if letter in _TYPES]
    if letters.endswith("-"):
        return FuncType(kinds, [])
    return FuncType(kinds[:-1], kinds[-1:])


def _guarded(call: Hostcall, broken: int | None) -> Callable[..., Any]:
    """Return a host call for the engine.

    No exception leaves it: wasmtime-py keeps the last one in one place for all threads, and might
    raise it in another guest.
    """

    def guarded(caller: Caller, *numbers: int) -> int | None:
        guest = current()
        try:
            guest.called_by(caller)
            return call(guest, *numbers)
        except Fault as fault:
            return -fault.errno
        except Ended:
            guest.stop()
        except Exception:
            logger.exception("a host call failed")
        return broken

    return guarded


def _absent(_guest: Guest, *_numbers: int) -> int:
    return -Errno.ENOSYS


def _check_form(content: bytes) -> None:
    if len(content) > MAX_MODULE_BYTES:
        most = MAX_MODULE_BYTES // (1024 * 1024)
        raise BadModule(f"the module has {len(content):,} bytes; at most {most} MiB are taken")
    if content.startswith(_COMPONENT):
        raise BadModule("this is a component; build a core module (target wasm32-wasip1)")
    if not content.startswith(_CORE):
        raise BadModule("this is no WASM module: it does not begin with \\0asm, version 1")


def _check_imports(module: Module) -> None:
    known = {*IMPORTS, *ABSENT}
    missing = [
        f"{one.module}.{one.name}"
        for one in module.imports
        if (one.module in MODULES and one.name not in known)
        or one.module not in {*MODULES, wasi.MODULE}
    ]
    if missing:
        raise BadModule(f"the module imports what there is not: {', '.join(missing)}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
