"""Fetching with the real launchers, of packages that would do something at their installation."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bascule.errors import ServerUnavailable
from bascule.model.fetch_line import fetch_line
from bascule.model.launcher import from_cache
from bascule.node.pool.fetch import Fetch
from bascule.node.pool.pins import Package
from bascule.node.pool.process.spawn import Launch, Spawner
from bascule.node.pool.process.warden import default_spawner
from tests.flow.test_real_servers import launcher

SECONDS = 100.0


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = default_spawner()
    yield made
    await made.close()


def node_package(folder: Path, start: str = "", manifest: Mapping[str, Any] | None = None) -> Path:
    """Make a package whose installation says that it happened, and so does its start."""
    told = {
        "name": "probe",
        "version": "1.2.3",
        "bin": {"probe": "s"},
        "scripts": {"postinstall": f"touch {folder}/installed"},
    }
    code = f"#!/usr/bin/env node\nrequire('fs').writeFileSync('{folder}/started', '')\n"
    files = {"package.json": json.dumps(manifest or told), "s": start or code}
    path = folder / "probe.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def python_wheel(folder: Path) -> Path:
    """Make a wheel whose ``.pth`` file runs code in every interpreter, as does its command."""
    code = f"import pathlib; pathlib.Path({str(folder / 'installed')!r}).touch()\n"
    main = f"import pathlib\ndef main():\n    pathlib.Path({str(folder / 'started')!r}).touch()\n"
    info = "probe-1.2.3.dist-info"
    files = {
        "probe.pth": code,
        "probe.py": main,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: probe\nVersion: 1.2.3\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nprobe = probe:main\n",
    }
    lines = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"
    path = folder / "probe-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def python_sdist(folder: Path) -> Path:
    """Make a source distribution, which is built by running its code."""
    code = f"import pathlib; pathlib.Path({str(folder / 'installed')!r}).touch()\n"
    setup = code + "from setuptools import setup; setup(name='probe', version='1.2.3')\n"
    path = folder / "probe-1.2.3.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("probe-1.2.3/setup.py")
        entry.size = len(setup)
        archive.addfile(entry, io.BytesIO(setup.encode()))
    return path


def server(tmp_path: Path, *argv: str) -> Launch:
    own = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    for folder in own.values():
        Path(folder).mkdir()
    return Launch(argv, {**base(), **own, "UV_NO_PROGRESS": "1"})


def base() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


async def fetched(spawner: Spawner, launch: Launch) -> tuple[Package, ...]:
    line = fetch_line(launch.argv)
    assert line is not None
    return await Fetch(spawner, line, launch, base()).run(SECONDS)


def started(launch: Launch) -> None:
    """Start the server from what was fetched, without the network."""
    argv = from_cache(launch.argv)
    assert argv is not None
    subprocess.run(argv, env=dict(launch.env), check=True, timeout=SECONDS)


@pytest.mark.requirement("process:fetch-runs-nothing")
async def test_an_npm_package_runs_no_script_when_it_is_fetched_and_starts_offline(
    spawner: Spawner, tmp_path: Path
):
    package = node_package(tmp_path)
    launch = server(tmp_path, launcher("npx"), "-y", "-p", str(package), "probe")
    [found] = await fetched(spawner, launch)
    assert (found.name, found.version, found.hashes[0][:7]) == ("probe", "1.2.3", "sha512-")
    assert not (tmp_path / "installed").exists()
    assert not (tmp_path / "started").exists()
    started(launch)
    assert (tmp_path / "started").exists()


@pytest.mark.requirement("process:fetch-runs-nothing")
async def test_a_wheel_runs_nothing_when_it_is_fetched_and_starts_offline(
    spawner: Spawner, tmp_path: Path
):
    wheel = python_wheel(tmp_path)
    launch = server(tmp_path, launcher("uvx"), "--from", str(wheel), "probe")
    [found] = await fetched(spawner, launch)
    assert (found.name, found.hashes[0][:7]) == (str(wheel), "sha256:")
    assert not (tmp_path / "installed").exists()
    assert not (tmp_path / "started").exists()
    started(launch)
    assert (tmp_path / "started").exists()


@pytest.mark.requirement("process:fetch-runs-nothing")
async def test_what_would_have_to_be_built_is_refused_and_the_field_is_named(
    spawner: Spawner, tmp_path: Path
):
    launch = server(tmp_path, launcher("uvx"), "--from", str(python_sdist(tmp_path)), "probe")
    with pytest.raises(ServerUnavailable, match=r"build = true in \[sandbox\]"):
        await fetched(spawner, launch)
    assert not (tmp_path / "installed").exists()


async def test_what_a_server_wrote_into_its_home_configures_no_fetch(
    spawner: Spawner, tmp_path: Path
):
    launch = server(tmp_path, launcher("npx"), "-y", "-p", str(node_package(tmp_path)), "probe")
    (tmp_path / "home" / ".npmrc").write_text("ignore-scripts=false\ncache=/nowhere\n", "utf-8")
    await fetched(spawner, launch)
    assert not (tmp_path / "installed").exists()
    assert (tmp_path / "home" / ".npm").is_dir()


async def test_a_fetch_that_takes_too_long_is_ended_and_named(spawner: Spawner, tmp_path: Path):
    for name in ("uvx", "uv"):
        (tmp_path / name).write_text("#!/bin/sh\nsleep 600\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    launch = server(tmp_path, str(tmp_path / "uvx"), "probe")
    line = fetch_line(launch.argv)
    assert line is not None
    with pytest.raises(ServerUnavailable, match="start_timeout_ms"):
        await Fetch(spawner, line, launch, base()).run(0.2)


@pytest.mark.requirement("process:fetch-runs-nothing")
async def test_programs_that_a_package_brings_run_at_no_fetch_whatever_their_names(
    spawner: Spawner, tmp_path: Path
):
    names = ("probe", "node", "sh", "npm", "true")
    script = f"#!/bin/sh\ntouch {tmp_path}/started\n"
    package = node_package(
        tmp_path, script, {"name": "probe", "version": "1.2.3", "bin": dict.fromkeys(names, "s")}
    )
    await fetched(spawner, server(tmp_path, launcher("npx"), "-y", "-p", str(package), "probe"))
    assert list((tmp_path / "home").rglob("node_modules/.bin/node"))
    assert not (tmp_path / "started").exists()


@pytest.mark.requirement("process:home:kept")
@pytest.mark.parametrize("kind", ["uvx", "npx"])
async def test_what_two_servers_fetch_are_copies_of_their_own(
    spawner: Spawner, tmp_path: Path, kind: str
):
    package = node_package(tmp_path) if kind == "npx" else python_wheel(tmp_path)
    option = "-p" if kind == "npx" else "--from"
    files: list[set[tuple[int, int]]] = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        launch = server(tmp_path / name, launcher(kind), option, str(package), "probe")
        await fetched(spawner, launch)
        found = [path.lstat() for path in (tmp_path / name / "home").rglob("*") if path.is_file()]
        files.append({(one.st_dev, one.st_ino) for one in found})
    assert files[0]
    assert files[0].isdisjoint(files[1])
