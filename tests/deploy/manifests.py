"""The manifests of Kubernetes, read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from checks.tree import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(set(FOLDER.glob("*.yaml")) - {FOLDER / "kustomization.yaml"})


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


#: What describes the pods: of the control plane, and of nodes.
CONTROL, NODE = "deployment", "node-statefulset"


def pod(kind: str = CONTROL) -> dict[str, Any]:
    return read(kind)["spec"]["template"]["spec"]


def container(kind: str = CONTROL) -> dict[str, Any]:
    [only] = pod(kind)["containers"]
    return only


def variables(kind: str = CONTROL) -> dict[str, dict[str, Any]]:
    """Return the variables of the container by their names."""
    return {one["name"]: one for one in container(kind)["env"]}


def configuration(name: str = "configmap") -> str:
    """Return the text of ``bascule.toml``."""
    return read(name)["data"]["bascule.toml"]


def expanded(name: str, known: Mapping[str, str], kind: str = CONTROL) -> str:
    """Return a variable as a pod has it, made of variables before it."""
    return filled_in(variables(kind)[name]["value"], known)


def filled_in(text: str, known: Mapping[str, str]) -> str:
    """Return a text with variables in their places, as Kubernetes puts them there."""
    return re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], text)
