"""The manifests of nodes: each pod is a node of its own, with its token, its disk and its rules."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bascule.app.settings import SETTINGS, ServerSettings, load_settings
from bascule.asgi.connections import HEALTH_PATHS
from bascule.cli.main import _parse
from tests.deploy.manifests import (
    NODE,
    configuration,
    container,
    expanded,
    filled_in,
    pod,
    read,
    variables,
)

POD = {"POD_IP": "10.0.0.7", "POD_NAMESPACE": "prod", "POD_NAME": "bascule-node-1"}
CONFIG = "node-configmap"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def mounts() -> dict[str, dict[str, Any]]:
    return {one["mountPath"]: one for one in container(NODE)["volumeMounts"]}


def words() -> list[str]:
    """Return the command of a pod."""
    return [filled_in(one, POD) for one in container(NODE)["args"]]


@pytest.mark.requirement("observability:node-manifests")
def test_bascule_takes_the_settings_and_nothing_is_allowed_that_is_not_named(tmp_path: Path):
    file = tmp_path / "bascule.toml"
    file.write_text(configuration(CONFIG), encoding="utf-8")
    hosts = expanded("BASCULE_HOSTS", POD, NODE)
    settings, warnings = load_settings({}, {"BASCULE_HOSTS": hosts}, file)
    assert warnings == ()
    assert settings.server.hosts == (
        "bascule-node",
        "bascule-node.prod.svc",
        "tools.example.com",
        "10.0.0.7",
    )
    [port] = container(NODE)["ports"]
    assert settings.server.port == port["containerPort"]
    node = settings.node
    assert (node.executables, node.variables, node.files, node.egress) == ((), (), (), ())


@pytest.mark.requirement("observability:node-manifests")
def test_the_command_can_be_typed_and_names_the_control_plane_and_the_pod():
    given = _parse(words())
    assert callable(given.run)
    [service] = [one for one in read("service")["spec"]["ports"] if one["name"] == "grpc"]
    assert given.registry == f"{read('service')['metadata']['name']}.prod.svc:{service['port']}"
    assert given.name == POD["POD_NAME"]
    assert {given.config, given.token_file} <= set(mounts())
    assert mounts()[str(Path(given.ca).parent)]["readOnly"]


@pytest.mark.requirement("observability:node-manifests")
def test_a_pod_sees_its_own_token_and_no_other():
    [token] = [one for one in mounts().values() if one["name"] == "tokens"]
    assert (token["mountPath"], token["subPathExpr"]) == ("/etc/bascule/token", "$(POD_NAME)")
    volumes = {one["name"]: one for one in pod(NODE)["volumes"]}
    assert volumes["tokens"]["secret"]["secretName"] == "bascule-nodes"
    assert not [one for one in variables(NODE).values() if "valueFrom" in one and _secret(one)]


def _secret(variable: dict[str, Any]) -> bool:
    return "secretKeyRef" in variable["valueFrom"]


def test_the_variables_are_settings():
    names = {name for name in variables(NODE) if name.startswith("BASCULE_")}
    assert names <= {setting.variable for setting in SETTINGS}


@pytest.mark.requirement("observability:node-manifests")
def test_what_a_node_keeps_is_on_a_disk_of_its_own():
    given = tomllib.loads(configuration(CONFIG))
    above = mounts()[str(Path(given["data_dir"]).parent)]
    assert "readOnly" not in above
    [claim] = read(NODE)["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == above["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    gigabytes = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    assert given["ledger"]["max_backlog"] <= gigabytes * 2**30 // 2
    for name in ("tls_certificate", "tls_key"):
        assert mounts()[str(Path(given["server"][name]).parent)]["readOnly"]


@pytest.mark.requirement("observability:node-manifests")
def test_a_pod_is_awaited_for_longer_than_its_calls_may_take_to_end():
    [_, seconds] = container(NODE)["lifecycle"]["preStop"]["exec"]["command"]
    drain = ServerSettings().drain_seconds
    # Then what was cancelled ends, and the last report is sent.
    assert pod(NODE)["terminationGracePeriodSeconds"] >= int(seconds) + drain + 2 * 10 + 5


def test_the_probes_ask_at_the_port_of_the_node():
    asked: dict[str, Any] = {name: container(NODE)[name]["httpGet"] for name in PROBES}
    assert {one["path"] for one in asked.values()} == HEALTH_PATHS
    assert {(one["port"], one["scheme"]) for one in asked.values()} == {("https", "HTTPS")}
    start = container(NODE)["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] > 30, "a first start waits so long"


def test_a_pod_has_the_rights_of_a_replica_and_no_more():
    around, inside = pod(NODE)["securityContext"], container(NODE)["securityContext"]
    assert (around, inside) == (pod()["securityContext"], container()["securityContext"])
    assert pod(NODE)["automountServiceAccountToken"] is False
    assert pod(NODE)["enableServiceLinks"] is False


@pytest.mark.requirement("observability:node-manifests")
def test_the_service_the_budget_and_the_policy_are_for_the_pods_of_nodes():
    labels = read(NODE)["spec"]["template"]["metadata"]["labels"]
    assert labels != read("deployment")["spec"]["template"]["metadata"]["labels"]
    assert read(NODE)["spec"]["selector"]["matchLabels"] == labels
    service = read("node-service")["spec"]
    assert (service["selector"], service["sessionAffinity"]) == (labels, "ClientIP")
    assert read(NODE)["spec"]["serviceName"] == read("node-service")["metadata"]["name"]
    budget = read("node-poddisruptionbudget")["spec"]
    assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (labels, 1)
    policy = read("node-networkpolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    [plane, names] = policy["egress"]
    [to] = plane["to"]
    control = read("deployment")["spec"]["template"]["metadata"]["labels"]
    assert (to["podSelector"]["matchLabels"], plane["ports"]) == (control, [{"port": "grpc"}])
    assert {one["port"] for one in names["ports"]} == {53}
