"""Telling what a JSON value is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import pytest

from bascule.model.json import is_object


class Word(StrEnum):
    """A string of a type of its own."""

    ONE = "one"


VALUES = [None, True, 1, 1.5, "a", Word.ONE, b"a", [], (), {1}, object()]
OBJECTS = [{}, {"a": 1}, OrderedDict(a=1), MappingProxyType({"a": 1})]


@pytest.mark.parametrize("value", [*VALUES, *OBJECTS])
def test_an_object_is_any_mapping_and_nothing_else(value: object):
    assert is_object(value) == isinstance(value, Mapping)
