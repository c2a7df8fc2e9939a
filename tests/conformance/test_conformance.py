"""The official conformance suite for clients: every required scenario of both generations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.runner import survey
from tests.conformance.suite import (
    HERE,
    REVISIONS,
    Report,
    Scenario,
    install,
    read_table,
    required,
)

CHECKS = {scenario: int(number) for scenario, number in read_table(HERE / "checks.txt").items()}
BASELINE = read_table(HERE / "baseline.txt")

# The first one installs the suite and plays a whole revision; workers wait for one another.
pytestmark = pytest.mark.timeout(360)


@pytest.mark.requirement("transport:http:both-generations")
@pytest.mark.parametrize("scenario", CHECKS, ids=str)
def test_a_required_scenario_passes_in_full(
    scenario: Scenario, folder: Path, record_property: Callable[[str, object], None]
):
    report = survey(scenario.revision, folder).report(scenario.name)
    record_property("conformance", f"{scenario}: {report}")
    problem = report.shortfall(CHECKS[scenario])
    if scenario in BASELINE:
        assert problem, f"{scenario} passes now: take it out of baseline.txt"
    else:
        assert not problem, f"{problem}\n{report.output}"


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_suite_finds_that_a_revision_is_kept(revision: str, folder: Path):
    played = survey(revision, folder)
    assert any(scenario.revision == revision for scenario in BASELINE) == bool(played.exit_code), (
        played.output
    )


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_scenario_that_a_revision_requires_is_played(revision: str):
    install()
    played = {scenario.name for scenario in CHECKS if scenario.revision == revision}
    assert played == set(required("client", revision))


def test_the_baseline_names_only_scenarios_that_are_played():
    assert set(BASELINE) <= set(CHECKS)


@pytest.mark.parametrize(
    ("report", "expected", "words"),
    [
        (Report("exited with code 0", {"SUCCESS": 14}, ""), 14, ""),
        (Report("exited with code 0", {"SUCCESS": 7}, ""), 14, "14 checks must succeed"),
        (Report("exited with code 1", {"SUCCESS": 14}, ""), 14, "exited with code 1"),
        (Report("did not end", {"SUCCESS": 14}, ""), 14, "did not end"),
        (Report("exited with code 0", {"SUCCESS": 14, "FAILURE": 1}, ""), 14, "1 FAILURE"),
        (Report("exited with code 0", {"SUCCESS": 14, "WARNING": 1}, ""), 14, "1 WARNING"),
        (Report("did not end", {}, ""), 0, "no checks"),
    ],
)
def test_a_report_that_falls_short_says_how(report: Report, expected: int, words: str):
    shortfall = report.shortfall(expected)
    assert (words in shortfall) if words else not shortfall
