"""The chart: with its defaults it is the manifests, and every value is used and declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy import chart
from tests.deploy.manifests import FILES, FOLDER, read

IMAGE = {"image": "registry.example.com/bascule:0.1.0"}


def test_the_chart_has_a_template_for_every_manifest():
    assert [one.name for one in chart.templates()] == [one.name for one in FILES]


@pytest.mark.parametrize("template", chart.templates(), ids=lambda path: path.stem)
def test_a_template_with_the_defaults_is_the_manifest(template: Path):
    made = yaml.safe_load(chart.rendered(template, IMAGE))
    if made["kind"] in {"Deployment", "StatefulSet"}:
        # Manifests of their own have nothing that tells other settings.
        assert len(made["spec"]["template"]["metadata"].pop("annotations")["checksum/config"]) == 64
    assert made == read(template.stem)


def test_every_value_is_used_and_every_value_that_is_used_is_declared():
    used = {
        name
        for template in (*chart.templates(), chart.CHART / "templates" / "NOTES.txt")
        for name in re.findall(r"\.Values\.(\w+)", template.read_text(encoding="utf-8"))
    }
    assert used == set(chart.values())


def test_every_value_has_a_comment_but_those_that_speak_for_themselves():
    text = (chart.CHART / "values.yaml").read_text(encoding="utf-8")
    commented = set(re.findall(r"^#.*\n(\w+):", text, re.MULTILINE))
    assert set(chart.values()) - commented == {"replicas", "resources"}


@pytest.mark.parametrize("name", ["deployment", "node-statefulset"])
def test_without_an_image_there_are_no_pods(name: str):
    with pytest.raises(chart.Refused, match="give the image that you built"):
        chart.rendered(chart.CHART / "templates" / f"{name}.yaml", {})


def test_the_chart_says_what_it_is():
    made = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (made["apiVersion"], made["name"], "nodes" in made["description"]) == (
        "v2",
        "bascule",
        True,
    )


def test_another_release_and_other_settings_are_other_names_and_other_pods():
    template = chart.CHART / "templates" / "deployment.yaml"
    given = {**IMAGE, "config": 'environment = "prod"\n', "command": ["up", "--empty"]}
    other = yaml.safe_load(chart.rendered(template, given, "second"))
    same = yaml.safe_load(chart.rendered(template, IMAGE, "second"))
    assert other["metadata"]["name"] == "second"
    assert other["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == "second"
    [container] = other["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["up", "--empty"]
    of_pods = [one["spec"]["template"]["metadata"]["annotations"] for one in (other, same)]
    assert of_pods[0] != of_pods[1]


def test_the_notes_name_the_release():
    notes = chart.rendered(chart.CHART / "templates" / "NOTES.txt", {}, "second")
    assert "https://second.second.svc:7070" in notes
    assert "{{" not in notes


def test_nodes_of_another_release_follow_its_control_plane():
    template = chart.CHART / "templates" / "node-statefulset.yaml"
    made = yaml.safe_load(chart.rendered(template, {**IMAGE, "nodeReplicas": 5}, "second"))
    assert (made["metadata"]["name"], made["spec"]["replicas"]) == ("second-node", 5)
    [container] = made["spec"]["template"]["spec"]["containers"]
    assert "--registry=second.$(POD_NAMESPACE).svc:7071" in container["args"]
    policy = chart.CHART / "templates" / "node-networkpolicy.yaml"
    [plane, *_] = yaml.safe_load(chart.rendered(policy, {}, "second"))["spec"]["egress"]
    [pods] = plane["to"]
    labels = yaml.safe_load(
        chart.rendered(chart.CHART / "templates" / "deployment.yaml", IMAGE, "second")
    )["spec"]["template"]["metadata"]["labels"]
    assert pods["podSelector"]["matchLabels"] == labels


def test_the_kustomization_names_every_manifest_and_the_image_of_the_deployment():
    made = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    assert made["resources"] == [one.name for one in FILES]
    [image] = made["images"]
    for name in ("deployment", "node-statefulset"):
        [container] = read(name)["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"{image['name']}:{image['newTag']}"
