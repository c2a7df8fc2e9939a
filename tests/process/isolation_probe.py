"""A server that tries what it should not be able to do, and writes down what worked.

Standard library only: it runs as any server may, inside and outside. Each attempt is made in a
child of its own, since some of them are answered with death. The one argument is JSON: what there
is in the world around.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import sys
import time  # noqa: TID251 -- it runs without bascule
from collections.abc import Callable
from pathlib import Path
from typing import Any

World = dict[str, Any]
Attempt = Callable[[World], object]
ATTEMPTS: dict[str, Attempt] = {}
LEFT_OPEN: list[int] = []
SECONDS = 10.0
MB = 1 << 20
SHARED_MB = 16
HELD: list[object] = []
_LIBC = ctypes.CDLL(None, use_errno=True)
_ARM = platform.machine() == "aarch64"


def attempt(words: str) -> Callable[[Attempt], Attempt]:
    """Name an attempt; it worked unless it raises."""

    def add(function: Attempt) -> Attempt:
        ATTEMPTS[words] = function
        return function

    return add


def call(x86: int, arm: int, *arguments: object) -> int:
    """Make a system call, or raise with what the kernel answered."""
    passed = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result: int = _LIBC.syscall(ctypes.c_long(arm if _ARM else x86), *passed)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# Files.


@attempt("read the node's key")
def _(world: World) -> None:
    Path(world["key"]).read_bytes()


@attempt("list the data directory")
def _(world: World) -> None:
    if not list(Path(world["key"]).parent.iterdir()):
        raise OSError("it is empty")


@attempt("read a token file beside a granted folder")
def _(world: World) -> None:
    Path(world["token"]).read_bytes()


@attempt("read a token file inside a granted folder")
def _(world: World) -> None:
    if not Path(world["inner_token"]).read_bytes():
        raise OSError("it is covered")


@attempt("read another server's HOME")
def _(world: World) -> None:
    Path(world["other_home"], "file").read_bytes()


@attempt("read a browser's profile")
def _(world: World) -> None:
    Path(world["profile"]).read_bytes()


@attempt("read the key through a link of its own")
def _(world: World) -> None:
    link = Path(os.environ["HOME"], "link")
    link.symlink_to(world["key"])
    try:
        link.read_bytes()
    finally:
        link.unlink()


@attempt("read the key through another name of the file")
def _(world: World) -> None:
    name = Path(os.environ["HOME"], "name")
    name.hardlink_to(world["key"])
    try:
        name.read_bytes()
    finally:
        name.unlink()


@attempt("read the key through the root of another process")
def _(world: World) -> None:
    Path(f"/proc/{world['victim']}/root{world['key']}").read_bytes()


@attempt("open the key by its handle")
def _(world: World) -> None:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    path = ctypes.c_char_p(os.fsencode(world["key"]))
    call(303, 264, -100, path, handle, ctypes.byref(mount), 0)
    root = os.open("/", os.O_RDONLY)
    os.close(call(304, 265, root, handle, os.O_RDONLY))


@attempt("write outside of what was granted")
def _(world: World) -> None:
    Path(world["outside"], "written").write_bytes(b"here")


@attempt("write into a folder granted for reading")
def _(world: World) -> None:
    Path(world["granted"], "written").write_bytes(b"here")


@attempt("leave a file in the machine's /tmp")
def _(world: World) -> None:
    Path("/tmp", world["word"]).write_bytes(b"here")  # whether it is there is seen from outside


@attempt("see that the key is there")
def _(world: World) -> None:
    Path(world["key"]).stat()


@attempt("change the mode of the key")
def _(world: World) -> None:
    Path(world["key"]).chmod(0o644)  # as it is


@attempt("watch what changes in the data directory")
def _(world: World) -> None:
    path = ctypes.c_char_p(os.fsencode(Path(world["key"]).parent))
    call(254, 27, call(294, 26, 0), path, 0x2)


@attempt("watch a file system")
def _(world: World) -> None:
    path = ctypes.c_char_p(os.fsencode(Path(world["key"]).parent))
    call(301, 263, call(300, 262, 0x200, 0), 1, 2, -100, path)


# Other processes.


@attempt("limit another process")
def _(world: World) -> None:
    call(302, 261, world["victim"], resource.RLIMIT_CORE, (ctypes.c_uint64 * 2)(0, 0), 0)


@attempt("slow another process down")
def _(world: World) -> None:
    os.setpriority(os.PRIO_PROCESS, world["victim"], 1)


@attempt("keep another process to one processor")
def _(world: World) -> None:
    os.sched_setaffinity(world["victim"], {0})


@attempt("write into the first process")
def _(_world: World) -> None:
    os.close(os.open("/proc/1/mem", os.O_RDWR))  # what is written there, it runs


@attempt("see another process")
def _(world: World) -> None:
    if world["word"].encode() not in Path(f"/proc/{world['victim']}/cmdline").read_bytes():
        raise OSError("it is another one")


@attempt("read the environment of another process")
def _(world: World) -> None:
    if world["word"].encode() not in Path(f"/proc/{world['victim']}/environ").read_bytes():
        raise OSError("it is another one")


@attempt("kill the node's process")
def _(world: World) -> None:
    os.kill(world["victim"], signal.SIGCONT)  # as good as any signal


@attempt("trace another process")
def _(world: World) -> None:
    call(101, 117, 0x4206, world["victim"], 0, 0)  # let go when this process ends


@attempt("read the memory of another process")
def _(world: World) -> None:
    buffer = ctypes.create_string_buffer(8)
    where = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    there = (ctypes.c_size_t * 2)(int(world["address"]), 8)
    call(310, 270, world["victim"], ctypes.byref(where), 1, ctypes.byref(there), 1, 0)


@attempt("take a file of another process")
def _(world: World) -> None:
    handle = os.pidfd_open(world["victim"])
    os.close(call(438, 438, handle, 0, 0))


@attempt("use files that the node left open")
def _(_world: World) -> None:
    if not LEFT_OPEN:
        raise OSError("there are none")


def _is_open(descriptor: int) -> bool:
    try:
        return bool(fcntl.fcntl(descriptor, fcntl.F_GETFD) or True)
    except OSError:
        return False


@attempt("use shared memory of the machine")
def _(world: World) -> None:
    if _LIBC.shmget(ctypes.c_int(world["shared"]), ctypes.c_size_t(0), 0) < 0:
        raise OSError(ctypes.get_errno(), "no such memory")


@attempt("outlive the server")
def _(world: World) -> None:
    code = "import signal; signal.pause()"
    if os.fork() == 0:  # whether it is there is seen from outside, when the server has ended
        os.setsid()
        for descriptor in range(3):
            os.close(descriptor)
        if os.fork() == 0:
            words = [sys.executable, "-I", "-S", "-c", code, f"left-{world['word']}"]
            os.execve(sys.executable, words, {})  # noqa: S606 -- no shell is wanted
        os._exit(0)
    os.wait()


# The kernel.


@attempt("gain rights from a set-user-id program")
def _(world: World) -> None:
    done = subprocess.run([world["setuid"], "-u"], capture_output=True, check=True)
    if done.stdout.strip() != b"0" or os.geteuid() == 0:
        raise OSError("it has none")


@attempt("leave a program that has its owner's rights")
def _(_world: World) -> None:
    made = Path(os.environ["HOME"], "program")
    os.close(os.open(made, os.O_CREAT | os.O_WRONLY, 0o4755))


@attempt("give a program its owner's rights")
def _(_world: World) -> None:
    made = Path(os.environ["HOME"], "program2")
    made.touch()
    made.chmod(0o4755)


@attempt("give a program its owner's rights by another call")
def _(_world: World) -> None:
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    path = ctypes.c_char_p(os.fsencode(Path(os.environ["HOME"], "program3")))
    call(437, 437, -100, path, how, 24)


@attempt("be root")
def _(_world: World) -> None:
    os.setresuid(0, 0, 0)
    os.chown(os.environ["HOME"], 0, 0)
    os.chown(os.environ["HOME"], 12345, 12345)


@attempt("mount a file system")
def _(_world: World) -> None:
    where = os.fsencode(os.environ["HOME"])
    if _LIBC.mount(b"none", where, b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "not mounted")
    _LIBC.umount2(where, 2)


@attempt("make a user namespace")
def _(_world: World) -> None:
    if _LIBC.unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "not made")


@attempt("fork into a user namespace")
def _(_world: World) -> None:
    if call(56, 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)
    os.wait()


@attempt("make a device")
def _(_world: World) -> None:
    path = Path(os.environ["HOME"], "device")
    os.mknod(path, 0o20600, os.makedev(1, 1))
    path.unlink()


@attempt("use io_uring")
def _(_world: World) -> None:
    os.close(call(425, 425, 1, ctypes.create_string_buffer(120)))


@attempt("load a program into the kernel")
def _(_world: World) -> None:
    os.close(
        call(321, 280, 0, ctypes.create_string_buffer(struct.pack("IIII", 1, 4, 4, 1), 72), 72)
    )


@attempt("use the kernel's keyring")
def _(_world: World) -> None:
    call(250, 219, 0, -4, 1)


@attempt("watch the processor")
def _(_world: World) -> None:
    event = ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 1), 112)
    os.close(call(298, 241, event, 0, -1, -1, 0))


@attempt("handle page faults itself")
def _(_world: World) -> None:
    os.close(call(323, 282, os.O_CLOEXEC | 1))


@attempt("type into a terminal")
def _(_world: World) -> None:
    os.setsid()
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, 0x540E, 0)
    fcntl.ioctl(terminal, 0x5412, b"x")


# The network.


@attempt("reach a port of the machine by TCP")
def _(world: World) -> None:
    with socket.create_connection(("127.0.0.1", world["tcp"]), 2) as link:
        if link.recv(5) != b"hello":
            raise OSError("somebody else")


@attempt("reach a port of the machine by UDP")
def _(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(1)
        link.sendto(b"hello", ("127.0.0.1", world["udp"]))
        link.recv(5)


def _has_route(address: str, port: int) -> None:
    """Raise unless datagrams would leave for an address; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.connect((address, port))


@attempt("ask a name server")
def _(_world: World) -> None:
    _has_route("192.0.2.53", 53)


@attempt("reach the metadata address")
def _(_world: World) -> None:
    _has_route("169.254.169.254", 80)


@attempt("reach a private address")
def _(_world: World) -> None:
    _has_route("10.0.0.1", 443)


@attempt("open a raw socket")
def _(_world: World) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def _connect_local(address: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(2)
        link.connect(address)


@attempt("reach an abstract socket")
def _(world: World) -> None:
    _connect_local("\0" + world["word"])


@attempt("reach the session bus")
def _(world: World) -> None:
    _connect_local(world["bus"])


@attempt("reach the socket of docker")
def _(world: World) -> None:
    _connect_local(world["docker"])


# More than it may have.


@attempt("start many processes")
def _(world: World) -> None:
    started: list[int] = []
    try:
        for _ in range(world["processes"]):
            if (child := os.fork()) == 0:
                signal.pause()
                os._exit(0)
            started.append(child)
    finally:
        for child in started:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@attempt("use 4 GB of memory")
def _(world: World) -> None:
    with mmap.mmap(-1, 4096 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for at in range(0, world["memory_mb"] * MB, 4096):  # enough of it to know
            memory[at] = 1


def _shared_mb(world: World) -> range:
    return range(0, world["memory_mb"], SHARED_MB)


@attempt("use as much memory in files that are nowhere")
def _(world: World) -> None:
    for _ in _shared_mb(world):
        file = os.memfd_create("memory")
        os.ftruncate(file, SHARED_MB * MB)
        memory = mmap.mmap(file, SHARED_MB * MB)
        for at in range(0, SHARED_MB * MB, 4096):
            memory[at] = 1
        HELD.append(memory)


@attempt("use as much memory that is shared")
def _(world: World) -> None:
    _LIBC.shmat.restype = ctypes.c_void_p
    for _ in _shared_mb(world):
        segment = _LIBC.shmget(0, ctypes.c_size_t(SHARED_MB * MB), 0o600)
        if segment < 0:
            raise OSError(ctypes.get_errno(), "no memory")
        place = _LIBC.shmat(segment, None, 0)
        _LIBC.shmctl(segment, 0, None)  # it goes with this process
        ctypes.memset(place, 1, SHARED_MB * MB)


# Filling the disk through HOME, in ways that differ in what somebody outside can see of it.

_HELD: list[int] = []


def _written(name: str, folder: int | None = None) -> int:
    file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=folder)
    os.write(file, bytes(MB))
    return file


def _fill_plainly(at: int) -> None:
    os.close(_written(f"fill{at}"))


def _fill_without_names(at: int) -> None:
    _HELD.append(_written("fill"))
    Path("fill").unlink()


def _fill_a_closed_folder(at: int) -> None:
    Path("closed").mkdir(exist_ok=True)
    Path("closed").chmod(0o300)
    os.close(_written(f"closed/fill{at}"))


def _fill_in_depth(at: int) -> None:
    name = "a" * 250
    folder = _HELD[-1] if _HELD else os.open(".", os.O_RDONLY)
    os.mkdir(name, dir_fd=folder)
    _HELD.append(os.open(name, os.O_RDONLY, dir_fd=folder))
    if at > 16:  # deeper than any path that the kernel takes
        os.close(_written("fill", _HELD[-1]))


WAYS_TO_FILL: dict[str, Callable[[int], None]] = {
    "fill the disk through HOME": _fill_plainly,
    "fill it with files that have no name": _fill_without_names,
    "fill it in a folder that it closed": _fill_a_closed_folder,
    "fill it deeper than a path reaches": _fill_in_depth,
}


def fill(world: World) -> None:
    """Write into HOME, when told to, until there is more than there may be."""
    sys.stdin.readline()
    os.chdir(os.environ["HOME"])
    for at in range(world["fill_mb"]):
        WAYS_TO_FILL[world["fill"]](at)
    sys.stdout.write("filled\n")
    sys.stdout.flush()
    signal.pause()


def tried(function: Attempt, world: World) -> str:
    """Make one attempt in a child; return "" when it worked, and why not otherwise."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        said = b""
        try:
            function(world)
        except BaseException as fault:  # noqa: BLE001 -- whatever stopped it
            said = repr(fault).encode()
        os.write(tell, said or b"worked")
        os._exit(0)
    os.close(tell)
    until = time.monotonic() + SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.002)
    os.set_blocking(told, False)
    try:
        said = os.read(told, 4096)
    except BlockingIOError:
        said = b""
    os.close(told)
    return "" if said == b"worked" else said.decode() or "it was killed"


def main() -> None:
    """Try everything, and say what happened."""
    world: World = json.loads(sys.argv[1])
    if world["fill"]:
        fill(world)
        return
    LEFT_OPEN.extend(each for each in range(3, 256) if _is_open(each))
    found = {words: tried(function, world) for words, function in ATTEMPTS.items()}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
