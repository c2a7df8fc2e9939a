"""How code that runs is stopped: at every tick of the engine a guest asks whether it is to end.

wasmtime-py does not offer the engine's callback, so it is set through its bindings, here alone.
One function serves all stores: whose it is called for, the thread knows.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from wasmtime import Engine, Store
from wasmtime import _bindings as bindings  # pyright: ignore[reportPrivateUsage]

TICK_SECONDS: Final = 0.01
_CONTINUE: Final = 0
_here = threading.local()

_Callback = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(bindings.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(bindings.wasmtime_update_deadline_kind_t),
)
_new_error: Any = bindings.wasmtime_error_new  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_NO_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)()


@_Callback
def _asked(_context: Any, _data: Any, delta: Any, kind: Any) -> int:
    if _here.ended():
        # The engine takes the error over; its message is nobody's to read.
        return ctypes.cast(_new_error(b"the guest is to end"), ctypes.c_void_p).value or 0
    delta[0] = 1
    kind[0] = _CONTINUE
    return 0


def watch(store: Store, ended: Callable[[], bool]) -> None:
    """Have this thread's store ask at every tick whether it is to end."""
    _here.ended = ended
    bindings.wasmtime_store_epoch_deadline_callback(store.ptr(), _asked, None, _NO_FINALIZER)
    store.set_epoch_deadline(1)


class Ticker:
    """Moves an engine's epoch on, while any of its guests runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._guests = 0
        self._idle = threading.Event()

    @contextmanager
    def running(self) -> Generator[None]:
        """Tick for as long as a guest runs."""
        with self._lock:
            self._guests += 1
            if self._guests == 1:
                self._idle = threading.Event()
                ticks = threading.Thread(
                    target=self._tick, args=(self._idle,), name="guest-epochs", daemon=True
                )
                ticks.start()
        try:
            yield
        finally:
            with self._lock:
                self._guests -= 1
                if not self._guests:
                    self._idle.set()

    def _tick(self, idle: threading.Event) -> None:
        while not idle.wait(TICK_SECONDS):
            self._engine.increment_epoch()
