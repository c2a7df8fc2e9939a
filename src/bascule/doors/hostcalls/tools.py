"""``mcp_*``: a guest lists and calls the tools of its task."""

from __future__ import annotations

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.guest import Guest


def mcp_open(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def mcp_list_tools(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def mcp_call_tool(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def mcp_close(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def mcp_registry_list(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def mcp_registry_get(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)
