"""Tools of a guest's own, which a model calls while the guest waits for its answer.

A tool is a function ``i32 tool(args_ptr, args_len, out_ptr, out_len_ptr)``, found at an index of
the guest's table; where that is -1, it is the export that is named like the tool, for languages
that know no indexes. Arguments and result lie in an arena that the guest has set apart for them:

    args  NUL  pad to 8  │  out, as long as it may be  pad to 8  │  its length
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec import Struct
from wasmtime import Func, FuncType, Trap, ValType, WasmtimeError

from bascule.doors.hostcalls.abi import MASK, Errno, Fault
from bascule.doors.hostcalls.crossing import Ended
from bascule.doors.hostcalls.guest import Guest, Running
from bascule.loop.request import tool_name
from bascule.model.json import JsonObject, is_object
from bascule.model.outcome import Failed, Outcome, Success, failure
from bascule.wire.strict_json import StrictJsonError, dumps, loads

#: How deep tools may be nested: one that asks a model, which calls a tool, and so on.
MOST_NESTED: Final = 8
_BY_NAME: Final = MASK
_SIGN: Final = 0x8000_0000
_ALIGNED: Final = 8


class GuestTool(Struct, frozen=True):
    """A tool as a guest registered it; ``entry`` is what the model's server reads of it."""

    name: str
    index: int
    entry: JsonObject

    def find(self, guest: Guest) -> Func:
        """Return its function, or -EIO: no slot, an empty one, no export, another signature."""
        if self.index == _BY_NAME:
            found = guest.function(self.name)
        elif self.index & _SIGN:
            raise Fault(Errno.EFAULT)
        else:
            found = guest.function_at(self.index)
        if found is None or not _is_tool(found.type(guest.store)):
            raise Fault(Errno.EIO)
        return found


def read_tool(index: int, data: bytes) -> GuestTool | None:
    """Return a tool in OpenAI's form, or in that of its function alone; None for anything else."""
    try:
        plain = loads(data)
    except StrictJsonError:
        return None
    if not is_object(plain):
        return None
    whole = is_object(plain.get("function"))
    entry: JsonObject = {"type": "function", **(plain if whole else {"function": plain})}
    name = tool_name(entry)
    return None if name is None else GuestTool(name, index & MASK, entry)


class Arena(Struct, frozen=True):
    """The room that a guest has set apart: where it begins and ends."""

    base: int
    length: int

    def run(self, guest: Guest, tool: GuestTool, arguments: bytes, most: int) -> str:
        """Call a tool with arguments and return what it wrote; raise Fault with what it returned.

        One that has too little room says how much it needs, and is called once more if that is
        there. The memory may grow, and move, while the tool runs.
        """
        if not self.base or not self.length or (self.base | self.length) & _SIGN:
            raise Fault(Errno.EFAULT)
        out = self.base + _aligned(len(arguments) + 1)
        room = min(self.base + self.length - out - _ALIGNED, most)
        if room <= 0:
            raise Fault(Errno.ENOSPC)
        length_at = out + _aligned(room)
        if length_at + _ALIGNED // 2 > self.base + self.length:
            raise Fault(Errno.ENOSPC)
        function = tool.find(guest)
        memory = guest.memory
        memory.write(self.base, arguments + b"\0")
        for _ in range(2):
            memory.write_u32(length_at, room)
            code = function(guest.store, self.base, len(arguments), out, length_at)
            wrote = memory.u32(length_at)
            if code == 0:
                return _text(memory.read(out, wrote) if wrote <= room else None)
            if code != -Errno.ENOSPC:
                raise Fault(-code)
            if wrote > room:
                break
            room = wrote
        raise Fault(Errno.ENOSPC)


class GuestTools:
    """The tools of one conversation; the loop has them run on the guest's thread."""

    def __init__(
        self, guest: Guest, tools: Mapping[str, GuestTool], arena: Arena, most: int
    ) -> None:
        self._guest = guest
        self._tools = tools
        self._arena = arena
        self._most = most

    def has(self, name: str) -> bool:
        """Say whether the guest registered a tool of this name."""
        return name in self._tools

    async def run(self, name: str, arguments: JsonObject, *, max_output_bytes: int) -> Outcome:
        """Run a tool the next time the guest waits; one that is given up is stopped."""
        running = Running()
        most = min(self._most, max_output_bytes)
        job = partial(self._call, running, self._tools[name], dumps(arguments), most)
        try:
            return _success(await self._guest.crossing.enter(job))
        except _Failed as failed:
            error = failure("tool_exec_failed", str(failed))
            return Failed(error=error, request_id="", revision=0)
        except asyncio.CancelledError:
            running.abandoned = True
            self._guest.crossing.wake()
            raise

    def _call(self, running: Running, tool: GuestTool, arguments: bytes, most: int) -> str:
        """Enter the guest's code, on its thread."""
        guest = self._guest
        if running.abandoned:
            raise _Failed("nobody waits for it any more")
        if guest.depth >= MOST_NESTED:
            raise _Failed(f"tools of the guest's own are nested {MOST_NESTED} deep already")
        guest.running.append(running)
        try:
            return self._arena.run(guest, tool, arguments, most)
        except Fault as fault:
            raise _Failed(f"tool rc: {-fault.errno}") from None
        except (Trap, WasmtimeError) as trap:
            if guest.crossing.ended:
                raise Ended from None
            raise _Failed(f"it trapped: {_reason(trap)}") from None
        finally:
            guest.running.pop()


class _Failed(Exception):
    """A tool that gave no result, and why."""


def _success(text: str) -> Success:
    """Return a result: JSON as what it says, other text as text."""
    try:
        structured = loads(text.encode())
    except StrictJsonError:
        structured = None
    content = ({"type": "text", "text": text},)
    return Success(text=text, content=content, structured=structured, request_id="", revision=0)


def _text(data: bytes | None) -> str:
    """Return a result as text; one that is longer than its room, or no UTF-8, is -EIO."""
    try:
        if data is not None:
            return data.decode()
    except UnicodeDecodeError:
        pass
    raise Fault(Errno.EIO)


def _aligned(length: int) -> int:
    return (length + _ALIGNED - 1) // _ALIGNED * _ALIGNED


def _is_tool(kind: FuncType) -> bool:
    return kind.params == [ValType.i32()] * 4 and kind.results == [ValType.i32()]


def _reason(trap: Trap | WasmtimeError) -> str:
    code = trap.trap_code if isinstance(trap, Trap) else None
    return "its code failed" if code is None else code.name.lower().replace("_", " ")
