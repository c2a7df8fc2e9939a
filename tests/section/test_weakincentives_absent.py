"""Without weakincentives its adapter can still be imported, and says what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bascule.section import weakincentives
from bascule.section.weakincentives import McpToolOutput

PROGRAM = """
import sys
sys.modules["weakincentives"] = None
import bascule.section.weakincentives
try:
    from bascule.section.weakincentives import McpIntegrationSection
except ImportError as error:
    print(error)
"""


def test_the_adapter_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install 'bascule[weakincentives]'" in done.stdout
    assert "Python 3.12.3 or newer" in done.stdout
    assert f"this is {'.'.join(map(str, sys.version_info[:3]))}" in done.stdout
    with pytest.raises(AttributeError):
        weakincentives.__getattr__("Anything")


def test_an_output_renders_as_its_texts_or_as_json() -> None:
    two = ({"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"})
    assert McpToolOutput(two).render() == "one\ntwo"
    assert McpToolOutput((), {"n": 1}).render() == '{"n": 1}'
    assert McpToolOutput(({"type": "image"},)).render() == '[{"type": "image"}]'
    assert McpToolOutput((), McpToolOutput()).render() == (
        '{"content": [], "structured": null, "is_error": false}'
    )
