"""What a guest imports: names, signatures and error numbers, as Spear has them.

A signature is one letter for each parameter, then the result: ``i`` is an i32, ``l`` an i64, ``-``
is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

#: Every import is found under both names.
MODULES: Final = ("spear", "bascule")
#: What a guest exports to be run.
ENTRY: Final = "_start"
MASK: Final = 0xFFFF_FFFF


class Errno(IntEnum):
    """Error numbers: Linux values, on every platform. Calls return the negative."""

    EPERM = 1
    ENOENT = 2
    EIO = 5
    EBADF = 9
    EAGAIN = 11
    ENOMEM = 12
    EACCES = 13
    EFAULT = 14
    EEXIST = 17
    EINVAL = 22
    EMFILE = 24
    ENOSPC = 28
    EPIPE = 32
    ENOSYS = 38
    EILSEQ = 84
    ECONNRESET = 104
    ENOTCONN = 107
    ETIMEDOUT = 110
    ECANCELED = 125


class Fault(Exception):
    """Ends a host call with an error number; the guest reads its negative."""

    def __init__(self, errno: int) -> None:
        self.errno = errno
        super().__init__(errno)


IMPORTS: Mapping[str, str] = {
    "time_now_ms": "l",
    "wall_time_s": "l",
    "random_i64": "l",
    "sleep_ms": "i-",
    "log": "iiii",
    "cchat_create": "i",
    "cchat_write_msg": "iiiiii",
    "cchat_write_fn": "iiiii",
    "cchat_ctl": "iiiii",
    "cchat_send": "iii",
    "cchat_recv": "iiii",
    "cchat_close": "ii",
    "mcp_open": "iii",
    "mcp_list_tools": "iiii",
    "mcp_call_tool": "iiiiiiii",
    "mcp_close": "ii",
    "mcp_registry_list": "iii",
    "mcp_registry_get": "iiiii",
    "spear_epoll_create": "i",
    "spear_epoll_ctl": "iiiii",
    "spear_epoll_wait": "iiiii",
    "spear_epoll_close": "ii",
    "spear_fd_ctl": "iiiii",
}
#: Audio and browser streams: a guest that imports them starts, and is told that there are none.
ABSENT: Mapping[str, str] = {
    "rtasr_create": "i",
    "rtasr_ctl": "iiiii",
    "rtasr_write": "iiii",
    "rtasr_read": "iiii",
    "rtasr_close": "ii",
    "mic_create": "i",
    "mic_ctl": "iiiii",
    "mic_read": "iiii",
    "mic_close": "ii",
    "user_stream_open": "iii",
    "user_stream_read": "iiii",
    "user_stream_write": "iiii",
    "user_stream_close": "ii",
    "user_stream_ctl_open": "i",
    "user_stream_ctl_read": "iiii",
}
