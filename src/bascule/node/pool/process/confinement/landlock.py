"""Landlock: files that may be read and written, and from where sockets and signals may go."""

from __future__ import annotations

import ctypes
import os
import struct

from .kernel import open_place, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every machine
_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REMOVE, _MAKE = 0x30, 0x1780  # folders and files; folders, files, sockets, FIFOs, links
_ALL = 0x1FFF
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_BIND_TCP_AND_CONNECT_TCP = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3

#: From these versions of the interface on.
TCP_SINCE, SCOPES_SINCE, UNIX_PATHS_SINCE = 4, 6, 9


def version() -> int:
    """Return the version of the interface; raise ``OSError`` where there is none."""
    return syscall(_CREATE, 0, 0, _VERSION)


def restrict(
    read: Iterable[str],
    write: Iterable[str],
    devices: Iterable[str],
    *,
    network: str,
    own_proc: Iterable[str] = (),
) -> None:
    """Leave this process these files, and no more; all below a folder is meant with it."""
    known = version()
    rights = _ALL | sum(right for since, right in _LATER if known >= since)
    ruleset = _ruleset(rights, known, network=network)
    try:
        for path in read:
            _grant(ruleset, path, rights & _READ)
        for path in own_proc:
            _grant(ruleset, path, rights & _READ, links=True)
        for path in devices:
            _grant(ruleset, path, rights & (_READ_FILE | _WRITE_FILE))
        for path in write:
            _grant(ruleset, path, rights & (_READ | _WRITE_FILE | _REMOVE | _MAKE | _LATER_WRITE))
        syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def restrict_scope(*, network: str) -> None:
    """Keep abstract sockets and signals inside, and leave files and mounts as they are."""
    known = version()
    if known < SCOPES_SINCE and (known < TCP_SINCE or network != "none"):
        return
    ruleset = _ruleset(0, known, network=network)
    try:
        syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


_LATER = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE))
_LATER_WRITE = _REFER | _TRUNCATE


def _ruleset(files: int, known: int, *, network: str) -> int:
    words = [files]
    if known >= TCP_SINCE:
        words.append(_BIND_TCP_AND_CONNECT_TCP if network == "none" else 0)
    if known >= SCOPES_SINCE:
        words.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = (ctypes.c_uint64 * len(words))(*words)
    return syscall(_CREATE, ctypes.byref(attributes), 8 * len(words), 0)


def _grant(ruleset: int, path: str, rights: int, *, links: bool = False) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC) if links else open_place(path)
    except FileNotFoundError:
        return  # nothing there, nothing to grant
    try:
        if not os.path.isdir(f"/proc/self/fd/{place}"):
            rights &= _OF_A_FILE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place), 12)
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(place)
