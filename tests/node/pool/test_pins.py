"""What a server is held to: kept, compared, renewed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.errors import LaunchDenied
from bascule.node.pool.pins import Package, PinFile
from bascule.testing.clock import FakeClock

ONE = Package("a", "1", ("sha256:aa", "sha256:bb"))


@pytest.fixture
def pins(tmp_path: Path) -> PinFile:
    return PinFile("time", tmp_path / "a.pins.json", FakeClock())


def test_nothing_is_held_before_anything_came(pins: PinFile):
    assert pins.read() is None
    assert not pins.fresh()
    assert pins.hold([ONE]) == (ONE,)


async def test_what_came_is_fresh_for_a_day(tmp_path: Path):
    clock = FakeClock()
    pins = PinFile("time", tmp_path / "a.pins.json", clock)
    pins.keep((ONE,), {"x": "y"})
    assert pins.fresh()
    await clock.advance(86_401)
    assert not pins.fresh()
    kept = pins.read()
    assert kept is not None
    assert (kept.packages, kept.files) == ((ONE,), {"x": "y"})


def test_a_version_that_gained_files_is_held_to_those_it_had_and_one_that_lost_some_too(
    pins: PinFile,
):
    pins.keep((ONE,), {})
    more = Package("a", "1", ("sha256:aa", "sha256:bb", "sha256:cc"))
    assert pins.hold([more]) == (ONE,)
    assert pins.hold([Package("a", "1", ("sha256:aa",))]) == (ONE,)


@pytest.mark.requirement("process:fetch-pinned")
def test_a_version_that_was_replaced_is_refused_though_others_came_meanwhile(pins: PinFile):
    pins.keep((ONE,), {})
    pins.keep((Package("a", "2", ("sha256:dd",)),), {})
    words = (
        r"a 1 is not what it was: sha256:bb came before, sha256:ee now.*servers clean time --pins"
    )
    with pytest.raises(LaunchDenied, match=words):
        pins.hold([Package("a", "1", ("sha256:aa", "sha256:ee"))])


def test_what_changed_is_said_once_with_what_is_new_and_gone(
    pins: PinFile, caplog: pytest.LogCaptureFixture
):
    pins.keep((ONE, Package("b", "1")), {})
    assert not caplog.messages
    after = (Package("a", "2"), Package("c", "1"), Package("c", "2"))
    for _ in range(2):
        pins.keep(after, {})
    assert caplog.messages == [
        f"time now has other packages: {change}"
        for change in ("a 1 -> 2", "b 1 -> none", "c none -> 1 and 2")
    ]


def test_a_place_on_this_machine_is_its_owners_to_change(pins: PinFile):
    pins.keep((Package("/srv/a.whl", "", ("sha256:aa",)),), {})
    other = Package("/srv/a.whl", "", ("sha256:bb",))
    assert pins.hold([other]) == (other,)
