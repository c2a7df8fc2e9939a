"""The engine, its linker and the modules it has compiled: made once, shared by all guests."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

from wasmtime import Config, Engine, Module, WasmtimeError

from bascule.doors.hostcalls import basics, chat, readiness, tools, wasi
from bascule.doors.hostcalls.abi import ABSENT, IMPORTS, MODULES, Errno
from bascule.doors.hostcalls.epochs import Ticker
from bascule.doors.hostcalls.guest import Exit, Guest
from bascule.doors.hostcalls.host import GuestLimits, Host
from bascule.doors.hostcalls.host_functions import Hostcall, HostFunctions
from bascule.doors.hostcalls.module_cache import ModuleCache
from bascule.doors.hostcalls.program import BadModule, Program, cause, check_form, program_of

logger = logging.getLogger(__name__)

#: How many programs are kept ready, those used last.
_MOST_PROGRAMS: Final = 16
#: Changes with whatever changes the code that is compiled, besides the engine's version.
_SETTINGS: Final = "1"

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


class GuestEngine:
    """Compiles modules and runs them. With ``fuel`` it counts instructions, which costs time."""

    def __init__(self, *, fuel: bool = False, cache: ModuleCache | None = None) -> None:
        self._engine = Engine(_config(fuel=fuel))
        self._functions = _functions(self._engine)
        self._ticker = Ticker(self._engine)
        self._cache = cache
        self._salt = f"{version('wasmtime')} {_SETTINGS} {fuel}\0".encode()
        self._programs: OrderedDict[str, Program] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, content: bytes) -> Program:
        """Compile a module, once; raise BadModule for what is none, or needs what there is not.

        It takes seconds for a large one: not to be done on the loop's thread.
        """
        check_form(content)
        name = hashlib.sha256(self._salt + content).hexdigest()
        with self._lock:
            program = self._programs.get(name) or self._made(name, content)
            self._programs[name] = program
            self._programs.move_to_end(name)
            while len(self._programs) > _MOST_PROGRAMS:
                self._programs.popitem(last=False)
        return program

    async def run(self, program: Program, host: Host) -> Exit:
        """Run a guest to its end; raise BadModule if it needs more memory than it may have."""
        program.check_memory(host.limits)
        with self._ticker.running():
            return await Guest(self._engine, program, host).run()

    def _made(self, name: str, content: bytes) -> Program:
        module = self._kept(name) or self._compiled(name, content)
        return program_of(module, content, self._functions)

    def _kept(self, name: str) -> Module | None:
        code = None if self._cache is None else self._cache.load(name)
        if code is None:
            return None
        try:
            return Module.deserialize(self._engine, code)
        except WasmtimeError as error:
            logger.warning("a compiled module is of no use here; compiling anew: %s", cause(error))
            return None

    def _compiled(self, name: str, content: bytes) -> Module:
        try:
            module = Module(self._engine, content)
        except WasmtimeError as error:
            raise BadModule.of(error) from None
        if self._cache is not None:
            self._cache.keep(name, bytes(module.serialize()))
        return module


class Engines:
    """The engine for each kind of limits: the one that counts is made when it is first needed."""

    def __init__(self, cache: ModuleCache | None = None) -> None:
        self._cache = cache
        self._made: dict[bool, GuestEngine] = {}
        self._lock = threading.Lock()

    def of(self, limits: GuestLimits) -> GuestEngine:
        """Return the engine for guests with these limits."""
        fuel = limits.fuel is not None
        with self._lock:
            if fuel not in self._made:
                self._made[fuel] = GuestEngine(fuel=fuel, cache=self._cache)
            return self._made[fuel]


def _config(*, fuel: bool) -> Config:
    config = Config()
    config.epoch_interruption = True
    config.consume_fuel = fuel
    config.wasm_threads = False  # atomic waits end by no epoch
    config.wasm_memory64 = False
    config.wasm_multi_memory = False
    config.wasm_gc = False  # its heap is held to no limit, and so is that of exceptions
    config.wasm_exceptions = False
    config.wasm_function_references = False
    config.wasm_stack_switching = False
    config.wasm_custom_page_sizes = False
    return config


def _functions(engine: Engine) -> HostFunctions:
    functions = HostFunctions(engine)
    for name, letters in wasi.IMPORTS.items():
        functions.define(wasi.MODULE, name, letters, wasi.CALLS[name], wasi.answer)
    for name, letters in {**IMPORTS, **ABSENT}.items():
        for module in MODULES:
            functions.define(module, name, letters, CALLS.get(name, _absent), int.__neg__)
    return functions


def _absent(_guest: Guest, *_numbers: int) -> int:
    return -Errno.ENOSYS
