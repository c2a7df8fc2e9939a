"""macOS's sandbox: the profile of a plan, and which level is in force. Nothing here runs there."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.errors import LaunchDenied
from bascule.model.sandbox import Level, Sandbox, Standing, at_least
from bascule.node.pool.opener import Opener
from bascule.node.pool.process.confinement import landlock, seatbelt
from bascule.node.pool.process.plain import PlainSpawner
from bascule.node.pool.process.plan import Confinement, draw
from bascule.node.pool.process.spawn import Launch, close_all
from tests.process.seatbelt_profile import allowed, filters, operations, read_profile
from tests.waits import SOON_SECONDS

ROOT = Path(__file__).parents[2]
#: Characters that a profile gives a meaning, among others.
_NAMES = st.text(st.sampled_from("ab\"\\ ();#|\n'.é"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..") and "/" not in name
)
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
_LISTS = st.lists(_PATHS, max_size=4)


def plan_of(**fields: Any) -> dict[str, Any]:
    empty = dict[str, Any](read=[], write=[], own=[], hide=[], links=[], network="none")
    return empty | fields


# The profile


@pytest.mark.requirement("process:sandbox:mac")
@given(_LISTS, _LISTS, _LISTS, _LISTS)
def test_whatever_paths_are_called_the_last_word_about_each_is_the_plans(
    read: list[str], write: list[str], hide: list[str], own: list[str]
):
    profile = read_profile(seatbelt.profile(plan_of(read=read, write=write, hide=hide, own=own)))

    def below(path: str, folders: list[str]) -> bool:
        return any(path == each or path.startswith(each + "/") for each in folders)

    for path in (*read, *write, *hide, *own, "/elsewhere"):
        inside = below(path, own)
        closed = below(path, hide) and not inside
        readable = not closed and (inside or below(path, [*read, *write]))
        assert allowed(profile, "file-read*", path) == readable
        assert allowed(profile, "process-exec*", path) == readable
        writable = not closed and (inside or below(path, write))
        assert allowed(profile, "file-write*", path) == writable


@pytest.mark.requirement("process:sandbox:mac")
@given(_LISTS, _LISTS)
def test_a_name_adds_no_rule_of_its_own(read: list[str], write: list[str]):
    hostile = read_profile(seatbelt.profile(plan_of(read=read, write=write)))
    plain = read_profile(
        seatbelt.profile(plan_of(read=["/a/b"] if read else [], write=["/c/d"] if write else []))
    )
    for profile in (hostile, plain):
        assert profile[:3] == [["version", "1"], ["deny", "default"], ["import", ("system.sb",)]]
    rules = [[rule[0], *operations(rule)] for rule in hostile]
    expected = [[rule[0], *operations(rule)] for rule in plain]
    metadata = ["allow", "file-read-metadata"]  # about folders above, which one at the root has not
    assert [rule for rule in rules if rule != metadata] == [
        rule for rule in expected if rule != metadata
    ]


@pytest.mark.requirement("process:sandbox:mac")
def test_every_rule_names_what_it_is_about_or_is_about_the_server_alone():
    profile = read_profile(seatbelt.profile(plan_of()))
    unlimited = {
        operation
        for rule in profile
        if rule[0] == "allow" and not any(isinstance(each, list) for each in rule)
        for operation in operations(rule)
    }
    assert unlimited == {"process-fork", "sysctl-read", "ipc-posix-sem"}


@pytest.mark.requirement("process:sandbox:mac")
def test_no_network_is_allowed_unless_all_of_it_is_and_then_no_socket_that_is_a_file():
    def about_network(network: str) -> list[Any]:
        profile = read_profile(seatbelt.profile(plan_of(network=network)))
        return [rule for rule in profile if any("network-" in each for each in operations(rule))]

    assert about_network("none") == about_network("egress") == []
    rules = about_network("full")
    assert ["allow", "network-outbound", ["remote", "ip"]] in rules
    assert [filters(rule, "subpath") for rule in rules] == [[], [], []]
    sockets = [path for rule in rules for path in filters(rule, "literal")]
    assert sockets == ["/private/var/run/mDNSResponder"]  # where names are asked for


@pytest.mark.requirement("process:sandbox:mac")
def test_services_that_hold_keys_are_not_asked():
    profile = read_profile(seatbelt.profile(plan_of(network="full")))
    services = [name for rule in profile for name in filters(rule, "global-name")]
    assert services
    assert not [name for name in services if "ecurity" in name or "keychain" in name.lower()]


# The level, with something else in the place of sandbox-exec


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("home", "granted", "secret", "granted/inner"):
            (folder / name).mkdir()
            (folder / name / "file").write_text(name, encoding="ascii")
        self.never = (str(folder / "secret"), str(folder / "granted/inner"))

    def launch(self, script: str, **fields: Any) -> Launch:
        fields.setdefault("read", (str(self.folder / "granted"),))
        sandbox = Sandbox(write=(), **fields)
        confinement = Confinement(
            sandbox, (str(self.folder / "home"),), self.never, str(self.folder)
        )
        argv = ("/bin/sh", "-c", script, "script", str(self.folder))
        return Launch(argv, {"PATH": os.environ["PATH"]}, None, confinement)


@pytest.fixture
def place() -> Generator[Place]:
    folder = Path("/var/tmp", f"seatbelt-{secrets.token_hex(8)}")
    folder.mkdir()
    yield Place(folder)
    shutil.rmtree(folder)


@pytest.fixture
async def mac(place: Place) -> AsyncGenerator[PlainSpawner]:
    """A spawner that takes this machine for a Mac."""
    try:
        landlock.version()
    except OSError as fault:
        pytest.skip(f"landlock does not work on this machine: {fault}")
    program = place.folder / "sandbox-exec"
    words = f'PYTHONPATH={ROOT} exec {sys.executable} -m tests.process.seatbelt_profile "$@"'
    program.write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
    program.chmod(0o755)
    spawner = PlainSpawner(platform="darwin", sandbox_exec=str(program))
    yield spawner
    await spawner.close()


async def ran(spawner: PlainSpawner, launch: Launch) -> tuple[Standing | None, str]:
    server = await spawner.spawn(launch)
    try:
        async with asyncio.timeout(SOON_SECONDS):
            assert await server.wait() == 0
        return server.standing, os.read(server.stdout_fd, 4096).decode()
    finally:
        await server.end()
        close_all((server.stdin_fd, server.stdout_fd, server.stderr_fd))


@pytest.mark.requirement("process:sandbox:mac")
async def test_on_a_mac_best_is_seatbelt_and_satisfies_who_requires_it(
    mac: PlainSpawner, place: Place
):
    script = (
        'cat "$1/granted/file"; for each in secret granted/inner; do'
        ' cat "$1/$each/file" 2>/dev/null || echo " no $each"; done;'
        ' echo x >"$1/home/new"; echo x 2>/dev/null >"$1/granted/new" || echo "no write"; ulimit -n'
    )
    standing, said = await ran(mac, place.launch(script, required=True, open_files=77))
    assert standing == Standing(asked="best", in_force="seatbelt")
    assert said.split("\n")[:-1] == ["granted no secret", " no granted/inner", "no write", "77"]
    assert (place.folder / "home/new").exists()


@pytest.mark.requirement("process:sandbox:mac")
@pytest.mark.parametrize("level", ["landlock", "namespaces", "bwrap"])
async def test_what_a_mac_does_not_have_is_refused_or_replaced_visibly(
    mac: PlainSpawner, place: Place, level: Level
):
    with pytest.raises(LaunchDenied, match=f"there is no {level} on macOS.*seatbelt"):
        await mac.spawn(place.launch("true", level=level, required=True))
    standing, _ = await ran(mac, place.launch("true", level=level))
    assert standing is not None
    assert (standing.asked, standing.in_force) == (level, "seatbelt")
    assert f"there is no {level} on macOS" in standing.why


@pytest.mark.requirement("process:sandbox:mac")
async def test_a_mac_has_no_egress_and_limits_are_limits(mac: PlainSpawner, place: Place):
    with pytest.raises(LaunchDenied, match="egress"):
        await mac.spawn(place.launch("true", network="egress", hosts=("a.example",)))
    standing, said = await ran(mac, place.launch('cat "$1/secret/file"', level="limits", read=()))
    assert (standing, said) == (Standing(asked="limits", in_force="limits"), "secret")


@pytest.mark.requirement("process:sandbox:mac", "process:sandbox:tried")
async def test_where_its_sandbox_does_not_work_a_mac_has_limits_and_says_so(place: Place):
    loose = place.folder / "loose"
    loose.write_text('#!/bin/sh\nshift 2; exec "$@"\n', encoding="utf-8")
    loose.chmod(0o755)
    for program, why in (("/nowhere/sandbox-exec", "there is no /nowhere"), (loose, "not granted")):
        spawner = PlainSpawner(platform="darwin", sandbox_exec=str(program))
        opener = Opener(spawner)
        assert why in (await opener.isolation())["seatbelt"]
        assert why in await opener.shortfall()
        with pytest.raises(LaunchDenied, match="seatbelt"):
            await spawner.spawn(place.launch("true", required=True))
        standing, _ = await ran(spawner, place.launch("true"))
        assert standing is not None
        assert standing.in_force == "limits"
        assert why in standing.why
        await opener.close()


@pytest.mark.requirement("process:sandbox:mac")
async def test_a_mac_is_asked_about_what_it_has_which_counts_as_keeping_files(mac: PlainSpawner):
    assert at_least("seatbelt", "landlock")
    assert not at_least("seatbelt", "namespaces")
    opener = Opener(mac)
    assert await opener.isolation() == {"seatbelt": "", "limits": ""}
    assert await opener.shortfall() == ""


@pytest.mark.requirement("process:sandbox:mac")
def test_a_plan_for_a_mac_closes_what_no_server_sees_whether_it_is_there_or_not(place: Place):
    launch = place.launch("true")
    assert launch.confinement is not None
    missing = Confinement(
        launch.confinement.sandbox, launch.confinement.own, (*place.never, "/Library/Keychains")
    )
    plan = draw(missing, "seatbelt", ["/bin/sh"], None, "/usr/bin:/bin")
    profile = read_profile(seatbelt.profile(plan))
    assert not allowed(profile, "file-read*", "/Library/Keychains/System.keychain")
    assert not allowed(profile, "file-read*", f"{place.folder}/granted/inner/file")
    assert allowed(profile, "file-read*", f"{place.folder}/granted/file")
    assert allowed(profile, "file-write*", f"{place.folder}/home/x")
    assert allowed(profile, "file-read*", "/dev/null")
