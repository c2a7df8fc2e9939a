"""The dashboard of Grafana asks for nothing that a process does not show."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from checks.tree import ROOT
from tests.audit.filled_metrics import filled

BOARD: dict[str, Any] = json.loads(
    (ROOT / "deploy" / "grafana" / "bascule.json").read_text(encoding="utf-8")
)
#: The labels that the collector adds to every series.
COLLECTED = {"job", "instance"}
METRIC = re.compile(r"\b(mcp_\w+)")
LABELS = re.compile(r"\{([^}]*)\}|by \(([^)]*)\)")
TARGETS = [
    pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']}-{target['refId']}")
    for panel in BOARD["panels"]
    for target in panel["targets"]
]


def shown() -> dict[str, set[str]]:
    """Return the labels of every series that a process can show, by its name."""
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(filled().render().decode())
        for sample in family.samples
    }


@pytest.mark.requirement("observability:dashboard")
@pytest.mark.parametrize(("expression", "legend"), TARGETS)
def test_a_panel_asks_for_metrics_and_labels_that_there_are(expression: str, legend: str):
    [name] = METRIC.findall(expression)
    matched = {
        re.split(r"[=!]", part.strip())[0]
        for groups in LABELS.findall(expression)
        for part in "".join(groups).split(",")
    }
    assert matched <= shown()[name] | COLLECTED
    grouped = re.search(r"by \(([^)]*)\)", expression)
    left = set(grouped[1].split(", ")) if grouped else shown()[name] | COLLECTED
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= left


def test_the_jobs_are_found_by_a_metric_that_every_process_has():
    [_, jobs] = BOARD["templating"]["list"]
    assert jobs["query"]["query"] == "label_values(mcp_registry_revision, job)"


def test_the_panels_are_on_a_grid_and_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
