"""``mcp_*``: a guest lists and calls the tools of its task, by servers that are registered.

Every pointer of a call is checked before the call leaves: a bad one runs no tool.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.mcp_session import Call, McpSession

#: Of a tool: a longer one is nobody's, and would only be repeated in an error.
_LONGEST_NAME: Final = 4096


def mcp_open(guest: Guest, pointer: int, length: int) -> int:
    server_id = guest.memory.text(pointer, length)
    session = guest.crossing.wait(lambda: guest.sessions.open_server(server_id))
    try:
        return guest.handles.add(McpSession(guest, server_id, session))
    except Fault:
        guest.crossing.wait(lambda: guest.sessions.close(session))
        raise


def mcp_list_tools(guest: Guest, number: int, pointer: int, length_pointer: int) -> int:
    handle = guest.handles.find(number, McpSession)
    window = guest.memory.window(pointer, length_pointer)
    return guest.memory.answer(window, handle.tools())


def mcp_call_tool(  # noqa: PLR0913 - the ABI's own
    guest: Guest,
    number: int,
    name_pointer: int,
    name_length: int,
    arguments_pointer: int,
    arguments_length: int,
    pointer: int,
    length_pointer: int,
) -> int:
    handle, memory = guest.handles.find(number, McpSession), guest.memory
    name = memory.text(name_pointer, name_length)
    if len(name) > _LONGEST_NAME:
        raise Fault(Errno.EINVAL)
    call = Call(name, memory.read(arguments_pointer, arguments_length))
    window = memory.window(pointer, length_pointer)
    answer = handle.answer(call)
    try:
        written = memory.answer(window, answer)
    except Fault as fault:
        if fault.errno == Errno.ENOSPC:
            handle.park(call, answer)
        raise
    handle.drop()
    return written


def mcp_close(guest: Guest, number: int) -> int:
    guest.handles.close(number, McpSession)
    return 0


def mcp_registry_list(guest: Guest, pointer: int, length_pointer: int) -> int:
    window = guest.memory.window(pointer, length_pointer)
    found = guest.crossing.wait(guest.sessions.servers)
    return guest.memory.answer(window, msgspec.json.encode({"servers": found}))


def mcp_registry_get(
    guest: Guest, name_pointer: int, name_length: int, pointer: int, length_pointer: int
) -> int:
    server_id = guest.memory.text(name_pointer, name_length)
    window = guest.memory.window(pointer, length_pointer)
    found = guest.crossing.wait(lambda: guest.sessions.server_entry(server_id))
    return guest.memory.answer(window, msgspec.json.encode(found))
