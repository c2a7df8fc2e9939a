"""Full outputs behind handles, within a bound."""

from __future__ import annotations

import pytest

from bascule.node.bridge.outputs import Outputs


def keep(outputs: Outputs, *slices: str) -> str | None:
    return outputs.keep(iter(slices), len("".join(slices).encode()))


def test_the_oldest_outputs_go_first_when_there_is_too_much():
    outputs = Outputs("s", limit=10)
    first, second, third = (keep(outputs, text) for text in ("aaaa", "bbbb", "cccc"))
    assert first is not None
    assert second is not None
    assert third is not None
    with pytest.raises(KeyError, match=first):
        outputs.read(first, 0, None)
    assert outputs.read(second, 0, None) == "bbbb"
    assert outputs.read(third, 1, 3) == "cc"


def test_an_output_over_the_bound_has_no_handle_and_drives_nothing_out():
    outputs = Outputs("s", limit=10)
    kept = keep(outputs, "aaaa")
    assert kept is not None
    assert keep(outputs, "b" * 11) is None
    assert outputs.read(kept, 0, None) == "aaaa"


def test_handles_are_never_used_twice():
    outputs = Outputs("s", limit=4)
    assert len({keep(outputs, "aaaa") for _ in range(5)}) == 5
    outputs.clear()
    assert keep(outputs, "aaaa") == "s-out-6"
