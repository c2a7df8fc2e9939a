"""The official conformance suite for servers, at the gateway: every scenario, in every place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import server_runner
from tests.conformance.server_runner import PLACES, Place, gave, passes, scenarios, survey
from tests.conformance.suite import Report, Scenario, install, read_table

CHECKS = {scenario: int(count) for scenario, count in read_table(server_runner.CHECKS).items()}
LATER = read_table(server_runner.LATER)

RENEW = "renew it: python -m tests.conformance.server_runner --write"
#: Checks of tools alone, in scenarios that want more than tools.
PARTS = {
    Scenario("2026-07-28", "caching"): {
        *("sep-2549-tools-list-caching-hints", "sep-2549-ttl-non-negative"),
        *("sep-2549-cache-scope-valid", "wire-schema-valid"),
    }
}

# The first one of a place plays both revisions; workers wait for one another.
pytestmark = pytest.mark.timeout(360)


@pytest.mark.requirement("gateway:conformance")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scenario", CHECKS, ids=str)
def test_a_scenario_that_needs_tools_alone_passes_in_full(
    scenario: Scenario,
    place: Place,
    folder: Path,
    record_property: Callable[[str, object], None],
):
    report = survey(place, folder).report(scenario)
    record_property("conformance", f"{place} {scenario}: {report}")
    problem = report.shortfall(CHECKS[scenario])
    assert not problem, f"{problem}\n{report.output}"


@pytest.mark.parametrize("scenario", LATER, ids=str)
def test_a_scenario_for_later_work_gives_what_the_table_says(scenario: Scenario, folder: Path):
    reports = [survey(place, folder).report(scenario) for place in PLACES]
    assert gave(reports) == LATER[scenario], (
        "renew: python -m tests.conformance.server_runner --write"
    )
    assert not passes(reports), f"{scenario} passes now: the table of checks has to hold it"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("part", PARTS, ids=str)
def test_the_part_of_a_later_scenario_that_is_about_tools_passes(
    part: Scenario, place: Place, folder: Path
):
    assert PARTS[part] <= with_status("SUCCESS", survey(place, folder).report(part))


def with_status(status: str, report: Report) -> set[str]:
    return {check["id"] for check in json.loads(report.output) if check["status"] == status}


def test_every_scenario_that_the_suite_has_for_servers_is_held_or_named_for_later():
    install()
    assert sorted(map(str, scenarios())) == sorted(map(str, (*CHECKS, *LATER)))
