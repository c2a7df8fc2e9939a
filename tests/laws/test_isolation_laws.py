"""Isolation: whatever a record says, what counts for it is never below the platform's floor."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from bascule.model.platform import PlatformRecord
from bascule.model.sandbox import LEVELS, NETWORKS, NO_SANDBOX, Sandbox
from bascule.model.server import ServerRecord
from bascule.policy.isolation import effective_sandbox, governed
from bascule.policy.loosening import loosened
from bascule.wire.records import decode
from tests.laws.record_strategies import PLATFORMS, SERVERS

_LIMITS = ("memory_mb", "processes", "cpu_seconds", "open_files", "home_mb")


def decoded(server: dict[str, Any], floor: dict[str, Any]) -> tuple[ServerRecord, PlatformRecord]:
    return decode(ServerRecord, server)[0], decode(PlatformRecord, floor)[0]


def in_force(record: ServerRecord, platform: PlatformRecord) -> Sandbox:
    found = effective_sandbox(record, platform)
    assert found is not None
    return found


@pytest.mark.requirement("record:sandbox:floor")
@given(SERVERS, PLATFORMS)
def test_no_record_is_below_the_floor(server: dict[str, Any], floor: dict[str, Any]):
    record, platform = decoded(server, floor)
    found, least = in_force(record, platform), platform.sandbox
    assert LEVELS.index(found.level) >= LEVELS.index(least.level)
    assert NETWORKS.index(found.network) >= NETWORKS.index(least.network)
    assert found.required >= least.required
    assert not found.build or least.build
    if found.network == least.network == "egress":
        assert set(found.hosts) <= set(least.hosts)
    for name in _LIMITS:
        bound: int | None = getattr(least, name)
        has: int | None = getattr(found, name)
        assert bound is None or (has is not None and has <= bound), name


@pytest.mark.requirement("record:sandbox:floor")
@given(SERVERS, PLATFORMS)
def test_the_floor_grants_nothing_that_the_record_does_not(
    server: dict[str, Any], floor: dict[str, Any]
):
    record, platform = decoded(server, floor)
    found, own = in_force(record, platform), record.sandbox or NO_SANDBOX
    assert LEVELS.index(found.level) >= LEVELS.index(own.level)
    assert NETWORKS.index(found.network) >= NETWORKS.index(own.network)
    assert (found.read, found.write) == (own.read, own.write)
    assert found.required >= own.required
    if found.network == own.network == "egress":
        assert set(found.hosts) <= set(own.hosts)


@given(SERVERS, PLATFORMS)
def test_the_floor_counts_once_however_often_it_is_laid(
    server: dict[str, Any], floor: dict[str, Any]
):
    record, platform = decoded(server, floor)
    once = governed(record, platform)
    assert governed(once, platform) == once


@pytest.mark.requirement("audit:policy-loosened")
@given(SERVERS, PLATFORMS)
def test_to_be_raised_to_a_floor_loosens_nothing(server: dict[str, Any], floor: dict[str, Any]):
    record, platform = decoded(server, floor)
    said = loosened(record, governed(record, platform))
    assert not [line for line in said if line.startswith("sandbox")]
