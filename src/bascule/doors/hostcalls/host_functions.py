"""Host functions as the engine calls them: the guest of this thread, its numbers, and an answer.

They are set through the engine's bindings, here alone. wasmtime-py's own way keeps the last
exception in one place for all threads, so that one guest's might be raised in another; and only an
exception would stop a guest there. Here none leaves, and a guest that is to end is stopped at once.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from wasmtime import Engine, FuncType, InstancePre, Linker, Module, ValType
from wasmtime import _bindings as bindings  # pyright: ignore[reportPrivateUsage]

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.crossing import Ended
from bascule.doors.hostcalls.guest import current

logger = logging.getLogger(__name__)

#: A host call: the guest and its numbers in, a number or nothing out.
Hostcall: TypeAlias = Callable[..., int | None]
#: What a guest reads for an error number.
Answer: TypeAlias = Callable[[int], int]

_TYPES: Final = {"i": ValType.i32, "l": ValType.i64}
_NOTHING: Final = "-"
_ENDED: Final = b"the guest is to end"
_NO_FINALIZER: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)()
_callback: Any = bindings.wasmtime_func_unchecked_callback_t
_define: Any = bindings.wasmtime_linker_define_func_unchecked  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_new_trap: Any = bindings.wasmtime_trap_new  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def function_type(letters: str) -> FuncType:
    """Return the type of a signature; see ``abi``."""
    params = [_TYPES[letter]() for letter in letters[:-1]]
    return FuncType(params, [] if letters[-1] == _NOTHING else [_TYPES[letters[-1]]()])


class HostFunctions:
    """What guests of one engine may import. It must not be gone before they are."""

    def __init__(self, engine: Engine) -> None:
        self.signatures: dict[tuple[str, str], str] = {}
        self._linker = Linker(engine)
        self._kept: list[object] = []

    def define(self, module: str, name: str, letters: str, call: Hostcall, answer: Answer) -> None:
        """Have guests find a host call under this name."""
        callback = _callback(_entered(name, letters, call, answer))
        self._kept.append(callback)
        into, called = module.encode(), name.encode()
        kind = function_type(letters)  # owns what it points to
        error = _define(
            *(self._linker.ptr(), into, len(into), called, len(called)),
            *(kind.ptr(), callback, None, _NO_FINALIZER),
        )
        assert not error, name  # noqa: S101 - every name is defined once
        self.signatures[module, name] = letters

    def instances(self, module: Module) -> InstancePre:
        """Return a module with its imports."""
        return self._linker.instantiate_pre(module)


def _entered(name: str, letters: str, call: Hostcall, answer: Answer) -> Callable[..., int]:
    fields = [(at, "i32" if letter == "i" else "i64") for at, letter in enumerate(letters[:-1])]
    result = None if letters[-1] == _NOTHING else "i32" if letters[-1] == "i" else "i64"
    broken = answer(Errno.EIO)

    def entered(_data: Any, caller: Any, values: Any, _count: int) -> int:
        guest = current()
        try:
            guest.enters(caller)
            found = call(guest, *[getattr(values[at], field) for at, field in fields])
        except Fault as fault:
            found = answer(fault.errno)
        except Ended:
            return _trap()
        except BaseException:
            if guest.complains(name):
                logger.exception("the host call %s of a guest failed", name)
            found = broken
        if guest.is_to_end():
            return _trap()
        if result is not None:
            setattr(values[0], result, found)
        return 0

    return entered


def _trap() -> int:
    """Return what stops the guest; the engine takes it over, and nobody reads it."""
    return ctypes.cast(_new_trap(_ENDED, len(_ENDED)), ctypes.c_void_p).value or 0
