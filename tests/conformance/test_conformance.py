"""The official conformance suite for clients: every required scenario of both generations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.runner import (
    HERE,
    REVISIONS,
    Report,
    Scenario,
    install,
    play,
    read_table,
    required,
)

CHECKS = {scenario: int(number) for scenario, number in read_table(HERE / "checks.txt").items()}
BASELINE = read_table(HERE / "baseline.txt")

# The first one installs the suite; a scenario starts node, a shell and Python.
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="session", autouse=True)
def suite() -> None:
    """Have the suite installed before any scenario is played."""
    install()


@pytest.mark.requirement("transport:http:both-generations")
@pytest.mark.parametrize("scenario", CHECKS, ids=str)
async def test_a_required_scenario_passes_in_full(
    scenario: Scenario, record_property: Callable[[str, object], None]
):
    report = await play(scenario)
    record_property("conformance", f"{scenario}: {report}")
    problem = shortfall(report, CHECKS[scenario])
    if scenario in BASELINE:
        assert problem, f"{scenario} passes now: take it out of baseline.txt"
    else:
        assert not problem, f"{problem}\n{report.output}"


def shortfall(report: Report, expected: int) -> str:
    """Say in which way a scenario did not pass; a client that stops half-way passes fewer."""
    if not report.clean:
        return str(report)
    if report.passed < expected:
        return f"{report}, where {expected} checks must succeed"
    return ""


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_scenario_that_a_revision_requires_is_played(revision: str):
    played = {scenario.name for scenario in CHECKS if scenario.revision == revision}
    assert played == set(required(revision))


def test_the_baseline_names_only_scenarios_that_are_played():
    assert set(BASELINE) <= set(CHECKS)


@pytest.mark.parametrize(
    ("report", "expected", "words"),
    [
        (Report(0, "exited with code 0", {"SUCCESS": 14}, ""), 14, ""),
        (Report(0, "exited with code 0", {"SUCCESS": 7}, ""), 14, "14 checks must succeed"),
        (Report(0, "exited with code 1", {"SUCCESS": 14}, ""), 14, "client exited with code 1"),
        (Report(0, "timed out", {"SUCCESS": 14}, ""), 14, "client timed out"),
        (Report(1, "exited with code 0", {"SUCCESS": 14}, ""), 14, "exit 1"),
        (Report(0, "exited with code 0", {"SUCCESS": 14, "FAILURE": 1}, ""), 14, "1 FAILURE"),
        (Report(0, "exited with code 0", {"SUCCESS": 14, "WARNING": 1}, ""), 14, "1 WARNING"),
        (Report(0, "did not run", {}, ""), 0, "no checks"),
    ],
)
def test_a_report_that_falls_short_says_how(report: Report, expected: int, words: str):
    assert (words in shortfall(report, expected)) if words else not shortfall(report, expected)
