"""The manifests: Kubernetes and Bascule take what they say, and nothing is left open."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate.utils import ValidationError, all_versions, validate

from bascule.app.settings import SETTINGS, load_settings
from bascule.asgi.connections import HEALTH_PATHS
from bascule.auth.server_key import VARIABLE as SERVER_KEY
from bascule.cli.main import _parse
from bascule.control.secret_keys import VARIABLE as SECRETS_KEY
from checks.tree import ROOT
from tests.deploy.manifests import (
    FILES,
    configuration,
    container,
    expanded,
    pod,
    read,
    variables,
)

VERSIONS = all_versions()
POD = {"POD_IP": "10.0.0.7", "POD_NAMESPACE": "prod"}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


# The validator opens its schemas without naming their encoding.
@pytest.mark.filterwarnings("ignore::EncodingWarning")
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_manifest_is_what_kubernetes_says_it_is(path: Path, version: str):
    manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    validate(manifest, version, strict=True)
    with pytest.raises(ValidationError):
        validate({**manifest, "unheard": 1}, version, strict=True)


def test_bascule_takes_the_settings(tmp_path: Path):
    file = tmp_path / "bascule.toml"
    file.write_text(configuration(), encoding="utf-8")
    settings, warnings = load_settings({}, {"BASCULE_HOSTS": expanded("BASCULE_HOSTS", POD)}, file)
    assert warnings == ()
    assert settings.server.hosts == (
        "bascule",
        "bascule.prod.svc",
        "bascule.example.com",
        "10.0.0.7",
    )
    ports = {one["name"]: one["containerPort"] for one in container()["ports"]}
    assert (settings.server.port, settings.server.grpc_port) == (ports["https"], ports["grpc"])


def test_the_variables_are_settings_and_keys():
    names = {name for name in variables() if name.startswith("BASCULE_")}
    assert names - {setting.variable for setting in SETTINGS} == {SERVER_KEY, SECRETS_KEY}


def test_the_command_can_be_typed_and_reads_the_file_that_is_mounted():
    words = container()["args"]
    assert callable(_parse(words).run)
    mounts = {one["mountPath"] for one in container()["volumeMounts"]}
    assert words[-1].removeprefix("--config=") in mounts


def test_every_file_of_the_settings_is_in_a_volume_and_the_data_can_be_written():
    mounts = {one["mountPath"]: one for one in container()["volumeMounts"]}
    given = tomllib.loads(configuration())
    for name in ("tls_certificate", "tls_key"):
        assert mounts[str(Path(given["server"][name]).parent)]["readOnly"]
    above = str(Path(given["data_dir"]).parent)
    assert "readOnly" not in mounts[above]
    volumes = {one["name"]: one for one in pod()["volumes"]}
    assert volumes[mounts[above]["name"]]["emptyDir"] == {"sizeLimit": "1Gi"}
    assert given["ledger"]["max_backlog"] == 2**30 // 2


def test_what_is_secret_comes_from_a_secret():
    for name in ("BASCULE_DSN", "BASCULE_SERVER_KEY", "BASCULE_SECRETS_KEY"):
        assert set(variables()[name]) == {"name", "valueFrom"}
        assert variables()[name]["valueFrom"]["secretKeyRef"]["name"] == "bascule"


def test_the_probes_ask_what_bascule_keeps_connections_for():
    asked: dict[str, Any] = {name: container()[name]["httpGet"] for name in PROBES}
    assert {one["path"] for one in asked.values()} == HEALTH_PATHS
    assert asked["readinessProbe"]["path"] == "/readyz"
    assert {(one["port"], one["scheme"]) for one in asked.values()} == {("https", "HTTPS")}


def test_a_pod_has_no_rights_that_it_does_not_need():
    around, inside = pod()["securityContext"], container()["securityContext"]
    assert (around["runAsNonRoot"], around["runAsUser"]) == (True, 65532)
    assert around["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["automountServiceAccountToken"] is False


def test_the_variables_of_a_service_are_no_settings():
    assert pod()["enableServiceLinks"] is False


def test_a_pod_is_awaited_for_longer_than_it_takes_to_end():
    [_, seconds] = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert pod()["terminationGracePeriodSeconds"] > int(seconds) + 2 * 10 + 5


def test_the_service_the_budget_and_the_policy_are_for_the_pods_of_the_deployment():
    labels = read("deployment")["spec"]["template"]["metadata"]["labels"]
    assert read("deployment")["spec"]["selector"]["matchLabels"] == labels
    assert read("service")["spec"]["selector"] == labels
    assert read("poddisruptionbudget")["spec"]["selector"]["matchLabels"] == labels
    policy = read("networkpolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    names = {one["name"] for one in container()["ports"]}
    assert {one["targetPort"] for one in read("service")["spec"]["ports"]} == names
    [ingress] = policy["ingress"]
    assert {one["port"] for one in ingress["ports"]} == names


def test_one_of_two_replicas_may_be_away():
    assert read("deployment")["spec"]["replicas"] == 2
    assert read("poddisruptionbudget")["spec"]["maxUnavailable"] == 1
    assert read("deployment")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_image_is_made_of_what_is_there_and_has_what_postgresql_and_grpc_need():
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    copied = [
        one for line in re.findall(r"^COPY ((?!--).+) \S+$", text, re.M) for one in line.split()
    ]
    assert copied
    assert [one for one in copied if not (ROOT / one).exists()] == []
    lock = (ROOT / "deploy" / "requirements.lock").read_text(encoding="utf-8")
    names = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["scale"]]
    assert {re.split(r"[<>=;\[]", one)[0] for one in needed} <= names
    assert re.findall(r"^USER (\d+)", text, re.MULTILINE) == [
        str(pod()["securityContext"]["runAsUser"])
    ]
