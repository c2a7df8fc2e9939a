"""``spear_epoll_*`` and ``spear_fd_ctl``: what is ready, and what a handle is."""

from __future__ import annotations

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.guest import Guest


def spear_epoll_create(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def spear_epoll_ctl(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def spear_epoll_wait(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def spear_epoll_close(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def spear_fd_ctl(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)
