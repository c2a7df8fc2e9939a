"""The public surface: a decision, not an accident."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import bascule

HEAVY = (
    *(
        "aiohttp",
        "asyncio",
        "cel",
        "grpc",
        "jsonschema_rs",
        "mcp",
        "mcp_types",
        "msgspec",
        "orjson",
    ),
    *("prometheus_client", "pydantic", "ssl", "starlette", "uvloop"),
)
HOMES = {
    name: f"bascule.{module}" for module, names in bascule._HOMES.items() for name in names.split()
}


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a statement loads in a fresh interpreter."""
    script = f"import sys; was = set(sys.modules); {statement}; print(*(set(sys.modules) - was))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=20,
    )
    return set(done.stdout.split())


def test_the_list_is_sorted_short_and_complete():
    assert bascule.__all__ == sorted(bascule.__all__)
    assert len(set(bascule.__all__)) == len(bascule.__all__) <= 25
    assert set(bascule.__all__) == set(HOMES)
    assert set(dir(bascule)) == {*bascule.__all__, "__version__"}


@pytest.mark.parametrize("name", bascule.__all__)
def test_every_public_name_can_be_imported_and_is_documented(name: str):
    value = getattr(bascule, name)
    assert value is getattr(sys.modules[HOMES[name]], name)
    if inspect.isclass(value):
        assert inspect.getdoc(value)
        assert value.__name__ == name


def test_the_type_checker_sees_the_same_names_from_the_same_places():
    tree = ast.parse(Path(bascule.__file__).read_text(encoding="utf-8"))
    checked = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert checked == HOMES


def test_a_name_that_is_not_public_says_so():
    with pytest.raises(AttributeError, match="no attribute 'Pool'"):
        _ = bascule.Pool


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_by("import bascule")
    assert "bascule" in loaded
    assert not loaded & set(HEAVY)
    assert {name for name in loaded if name.startswith("bascule")} == {"bascule", "bascule.lazy"}


def test_records_can_be_made_without_what_runs_servers():
    loaded = loaded_by("from bascule import Server; Server.stdio('a', 'b')")
    assert "bascule.server" in loaded
    assert not loaded & {"asyncio", "aiohttp", "mcp", "prometheus_client", "bascule.node.pool"}


def test_the_bridge_can_be_had_without_the_protocols_own_sdk():
    loaded = loaded_by("from bascule import Bridge")
    assert "bascule.node.assembly" in loaded
    assert not loaded & {"mcp", "pydantic", "prometheus_client", "cel"}
