"""What a server missed inside its sandbox, from what it said: a table, and laws over any words."""

from __future__ import annotations

import posixpath
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.sandbox import Level, Network, Sandbox
from bascule.node.pool.process.missed import Kind, Surroundings, missed
from bascule.node.pool.process.places import within
from bascule.wire.api.trials import Missed

PROGRAM = "/people/u/.tools/bin/git"


class Written:
    """A disk that is written down: what is there, links, and a program."""

    FILES: ClassVar = (
        "/srv/in/file",
        "/srv/in/a b.txt",
        "/data/out/old.db",
        PROGRAM,
        "/usr/lib/thing",
    )
    LINKS: ClassVar = {"/srv/link": "/people/u/.ssh", "/srv/short": "/srv/in"}

    def real(self, path: str) -> str:
        for link, target in self.LINKS.items():
            if within(path, link):
                return target + path[len(link) :]
        return path

    def kind(self, path: str) -> Kind | None:
        place = self.real(path)
        if place in self.FILES:
            return "file"
        folders = (
            "/srv/in",
            "/srv/granted",
            "/data/out",
            "/usr/lib",
            "/people/u",
            "/people/u/.ssh",
        )
        return "folder" if place in folders else None

    def installed(self, program: str) -> tuple[str, ...]:
        return (posixpath.dirname(PROGRAM),) if program in ("git", PROGRAM) else ()


def around(level: Level = "best", network: Network = "full", *hosts: str) -> Surroundings:
    return Surroundings(
        Sandbox(level=level, network=network, hosts=hosts),
        Written(),
        system=("/usr",),
        readable=("/srv/granted",),
        writable=("/srv/scratch",),
        own=("/tmp/own",),
        never=("/people/u/.ssh", "/proc", "/dev", "/tmp/other"),
    )


def one(field: str, value: str, wanted: str | None = None) -> list[tuple[str, str, str]]:
    return [(field, value, value if wanted is None else wanted)]


def plain(found: tuple[Missed, ...]) -> list[tuple[str, str, str]]:
    return [(each.field, each.value, each.wanted) for each in found]


FILES = {
    "python, refused": (
        "PermissionError: [Errno 13] Permission denied: '/srv/in/file'",
        one("read", "/srv/in/file"),
    ),
    "python, not there inside": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/srv/in/a b.txt'",
        one("read", "/srv/in/a b.txt"),
    ),
    "python, its own script": (
        "python: can't open file '/srv/in/file': [Errno 2] No such file or directory",
        one("read", "/srv/in/file"),
    ),
    "node, refused": (
        "Error: EACCES: permission denied, open '/srv/in/file'",
        one("read", "/srv/in/file"),
    ),
    "node, a folder": (
        "Error: ENOENT: no such file or directory, scandir '/srv/in'",
        one("read", "/srv/in"),
    ),
    "node, a module": ("Error: Cannot find module '/srv/in/file'", one("read", "/srv/in/file")),
    "node, a new folder": (
        "Error: EACCES: permission denied, mkdir '/data/out/new'",
        one("write", "/data/out", "/data/out/new"),
    ),
    "python, a folder that it would make": (
        "    os.mkdir(self, mode)\nPermissionError: [Errno 13] Permission denied: '/data/out'",
        one("write", "/data/out"),
    ),
    "go": ("open /srv/in/file: no such file or directory", one("read", "/srv/in/file")),
    "curly quotes": (
        "cat: \u2018/srv/in/file\u2019: No such file or directory",
        one("read", "/srv/in/file"),
    ),
    "a link": ("cat: /srv/short/file: Permission denied", one("read", "/srv/short/file")),
    "a new file": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/out/new.db'",
        one("write", "/data/out", "/data/out/new.db"),
    ),
    "a file system that is read-only": (
        "OSError: [Errno 30] Read-only file system: '/data/out/old.db'",
        one("write", "/data/out", "/data/out/old.db"),
    ),
    "what may be read only": (
        "PermissionError: [Errno 13] Permission denied: '/srv/granted/new'",
        one("write", "/srv/granted", "/srv/granted/new"),
    ),
    "the system's, which nobody should write": ("Read-only file system: '/usr/lib/thing'", []),
    "a file beside what nobody sees": (
        "EROFS: read-only file system, open '/people/u/notes'",
        [],
    ),
    "a key": ("Permission denied: '/people/u/.ssh/id'", one("", "", "/people/u/.ssh/id")),
    "a key behind a link": ("Permission denied: '/srv/link/id'", one("", "", "/srv/link/id")),
    "a way around": (
        "Permission denied: '/srv/in/../../people/u/.ssh/id'",
        one("", "", "/people/u/.ssh/id"),
    ),
    "a device": ("EACCES: permission denied, open '/dev/snd'", one("", "", "/dev/snd")),
    "its own HOME": ("FileNotFoundError: No such file or directory: '/tmp/own/home/x'", []),
    "what it may write": ("No such file or directory: '/srv/scratch/cache'", []),
    "what is nowhere": ("No such file or directory: '/opt/thing/settings.ini'", []),
    "the system's, which is not there outside": (
        "No such file or directory: '/usr/lib/optional.conf'",
        [],
    ),
    "everything": ("PermissionError: [Errno 13] Permission denied: '/'", []),
    "no refusal": ("reading '/srv/in/file' and /data/out", []),
    "a program, of python": (
        "FileNotFoundError: [Errno 2] No such file or directory: 'git'",
        one("read", "/people/u/.tools/bin", "git"),
    ),
    "a program, of node": ("Error: spawn git ENOENT", one("read", "/people/u/.tools/bin", "git")),
    "a program, of a shell": ("sh: 1: git: not found", one("read", "/people/u/.tools/bin", "git")),
    "a program, by its path": (
        f"bash: line 1: {PROGRAM}: No such file or directory",
        one("read", PROGRAM),
    ),
    "a program, of env": (
        "/usr/bin/env: \u2018git\u2019: No such file or directory",
        one("read", "/people/u/.tools/bin", "git"),
    ),
    "the network, which it has": ("getaddrinfo EAI_AGAIN api.example.org", []),
}


@pytest.mark.requirement("record:sandbox:missed")
@pytest.mark.parametrize(("said", "expected"), FILES.values(), ids=FILES)
def test_what_a_server_could_not_read_or_write_is_told_from_its_words(
    said: str, expected: list[tuple[str, str, str]]
):
    assert plain(missed(f"starting\n{said}\n", around())) == expected


NETWORK = {
    "node, a name": ("Error: getaddrinfo EAI_AGAIN api.example.org", "hosts", "api.example.org"),
    "python, a name with a port": (
        "HTTPSConnectionPool(host='api.example.org', port=8443): Failed to resolve it",
        "hosts",
        "api.example.org:8443",
    ),
    "curl": ("curl: (6) Could not resolve host: api.example.org", "hosts", "api.example.org"),
    "go": (
        "dial tcp: lookup api.example.org: Temporary failure in name resolution",
        "hosts",
        "api.example.org",
    ),
    "an address without TLS": (
        "fetch of http://api.example.org/x failed: ENETUNREACH",
        "hosts",
        "api.example.org:80",
    ),
    "a number": ("Error: connect ECONNREFUSED 192.0.2.1:443", "network", "full"),
    "this machine": ("connect ECONNREFUSED 127.0.0.1:5432", "network", "full"),
    "nothing named": ("<urlopen error [Errno -3] Temporary failure in name resolution>", "network",
                      "full"),
}  # fmt: skip


@pytest.mark.requirement("record:sandbox:missed")
@pytest.mark.parametrize(("said", "field", "value"), NETWORK.values(), ids=NETWORK)
def test_what_a_server_did_not_reach_is_told_where_its_network_is_kept_from_it(
    said: str, field: str, value: str
):
    for here in (around("best", "none"), around("best", "egress", "else.example")):
        [found] = missed(said, here)
        assert (found.field, found.value) == (field, value)
    assert missed(said, around("best", "full")) == ()
    [found] = missed(said, around("landlock", "none"))  # which cannot let hosts through
    assert (found.field, found.value) == ("network", "full")


@pytest.mark.requirement("record:sandbox:missed")
def test_a_socket_that_is_refused_as_a_call_is_the_network_and_a_host_that_is_granted_is_not():
    said = "PermissionError: [Errno 1] Operation not permitted"
    assert plain(missed(said, around("best", "none"))) == one("network", "full", "")
    assert missed(said, around("best", "egress", "a.example")) == ()
    again = "getaddrinfo ENOTFOUND a.example"
    assert missed(again, around("best", "egress", "a.example")) == ()


def test_the_same_is_told_once_and_no_more_than_a_few_things():
    said = "Permission denied: '/srv/in/file'\n"
    assert len(missed(said * 9, around())) == 1
    keys = "".join(f"Permission denied: '/dev/{number}'\n" for number in range(99))
    assert len(missed(keys, around())) == 6


_PARTS = st.sampled_from(
    ["people", "u", ".ssh", "id", "proc", "self", "dev", "srv", "link", "in", "short", "tmp",
     "other", "own", "..", ".", "", "usr", "lib", "data", "out"]
)  # fmt: skip
_PATHS = st.lists(_PARTS, min_size=1, max_size=7).map(lambda parts: "/" + "/".join(parts))
_WORDS = st.sampled_from(
    ["Permission denied: {!r}", "EACCES: permission denied, open {!r}", "{} (Permission denied)",
     "ENOENT: no such file or directory, mkdir {!r}", "Read-only file system: {!r}",
     "sh: 1: {}: not found", "spawn {} ENOENT", "Cannot find module {!r}"]
)  # fmt: skip
_NETWORKS: st.SearchStrategy[Network] = st.sampled_from(["none", "full"])


@pytest.mark.requirement("record:sandbox:missed")
@given(st.lists(st.tuples(_WORDS, _PATHS), max_size=6), _NETWORKS)
def test_no_place_is_ever_suggested_that_no_server_sees(
    lines: list[tuple[str, str]], network: Network
):
    here = around("best", network)
    said = "\n".join(words.format(path) for words, path in lines)
    for found in missed(said, here):
        if found.field in ("read", "write"):
            assert found.value.startswith("/")
            assert found.value not in ("/", *here.never)
            for place in (found.value, here.disk.real(found.value)):
                assert not any(within(place, closed) for closed in here.never)


@given(st.text(max_size=2000), _NETWORKS)
def test_any_words_at_all_are_read_without_harm(said: str, network: Network):
    assert len(missed(said, around("best", network))) <= 6
