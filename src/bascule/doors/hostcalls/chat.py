"""``cchat_*``: a guest talks to a model, which may call the guest's tools and those of its task."""

from __future__ import annotations

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.guest import Guest


def cchat_create(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def cchat_write_msg(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def cchat_write_fn(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def cchat_ctl(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def cchat_send(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def cchat_recv(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)


def cchat_close(guest: Guest, *numbers: int) -> int:
    raise Fault(Errno.ENOSYS)
