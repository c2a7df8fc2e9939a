"""Traces of one machine that must not be committed: its paths, its package registry.

The patterns are put together from pieces, so that this file does not trip over itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_HOSTS = ("files.python" + "hosted.org", "pypi" + ".org", "registry.npm" + "js.org")
_HOMES = ("work", "root", "home/[^/\\s]+", "Users/[^/\\s]+")
TRACES = {
    "a path of one machine": re.compile(rf"(?<![\w.~*}}>-])/(?:{'|'.join(_HOMES)})/"),
    "the host of a package registry": re.compile("|".join(re.escape(host) for host in _HOSTS)),
    "an address of a package index": re.compile(
        r"(?<!emit-)index" + r"-url\b|://\S+/" + r"simple\b"
    ),
}
ADDRESS = re.compile(r"https?:")


def traces_in(path: Path, root: Path) -> Iterator[str]:
    """Name every line of a file that only makes sense on one machine."""
    text = _text(path)
    name = path.relative_to(root)
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in TRACES.items():
            if pattern.search(line):
                yield f"{name}:{number}: {what}: take it out"
        if path.suffix == ".lock" and ADDRESS.search(line):
            yield f"{name}:{number}: an address in a lock file: run `make lock`"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""  # not text: nothing to read in it
