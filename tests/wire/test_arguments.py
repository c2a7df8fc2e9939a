"""The arguments of a call are read by one rule, whichever door they come by."""

from __future__ import annotations

import pytest

from bascule.wire.arguments import Arguments, NotAnObject, read_arguments
from bascule.wire.strict_json import StrictJsonError


@pytest.mark.parametrize("given", [None, "", "  \n", b"", {}, "{}"])
def test_nothing_at_all_is_an_empty_object(given: Arguments):
    assert read_arguments(given) == {}


@pytest.mark.parametrize("given", [{"a": "é"}, '{"a": "é"}', '{"a":"é"}'.encode()])
def test_a_mapping_and_its_json_text_are_the_same(given: Arguments):
    assert read_arguments(given) == {"a": "é"}


@pytest.mark.parametrize("given", ["null", "[1]", '"x"', b"7"])
def test_a_value_that_is_not_an_object_is_refused(given: Arguments):
    with pytest.raises(NotAnObject):
        read_arguments(given)


@pytest.mark.parametrize("given", ['{"a": "\ud800"}', '{"a": "\\ud800"}', b'{"a": "\xff"}'])
def test_half_of_a_surrogate_pair_is_refused_however_it_is_written(given: Arguments):
    with pytest.raises(StrictJsonError):
        read_arguments(given)
