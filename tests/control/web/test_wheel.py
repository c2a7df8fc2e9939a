"""The wheel carries the page: unpacked elsewhere, it serves it, on a machine without Node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import pytest

from bascule.control.web.page import BUILT
from tests.cli.served import served

ROOT = Path(__file__).parents[3]
UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")


@pytest.mark.requirement("admin:page:wheel")
def test_the_wheel_serves_the_page_without_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    subprocess.run(
        [UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, ROOT], check=True, timeout=100
    )
    [wheel] = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with ZipFile(wheel) as packed:
        packed.extractall(installed)
    page = installed / "bascule" / "control" / "web" / "page"
    assert files(page) == files(BUILT)
    (page / "icon.svg").write_text("<svg>of the wheel</svg>", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with served(tmp_path / "data", "--empty") as site:
        for name in ("", *files(page)):
            with urlopen(f"{site.url}/admin/{name}", timeout=20) as answer:  # noqa: S310 - our own
                assert answer.read() == (page / (name or "index.html")).read_bytes()


def files(page: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in page.iterdir()}
