"""A bridge over fakes, and both ways to be answered."""

from __future__ import annotations

import pytest

from tests.node.fakes import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param
