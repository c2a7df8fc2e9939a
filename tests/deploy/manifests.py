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


def pod() -> dict[str, Any]:
    return read("deployment")["spec"]["template"]["spec"]


def container() -> dict[str, Any]:
    [only] = pod()["containers"]
    return only


def variables() -> dict[str, dict[str, Any]]:
    """Return the variables of the container by their names."""
    return {one["name"]: one for one in container()["env"]}


def configuration() -> str:
    """Return the text of ``bascule.toml``."""
    return read("configmap")["data"]["bascule.toml"]


def expanded(name: str, known: Mapping[str, str]) -> str:
    """Return a variable as a pod has it, made of variables before it."""
    return re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], variables()[name]["value"])
