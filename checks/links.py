"""Relative links in Markdown: the file is there, and the heading is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[^\n]*$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def broken_links(page: Path, root: Path) -> Iterator[str]:
    """Name every relative link of a page that leads nowhere."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(root)
    for target in targets(text):
        if not ELSEWHERE.match(target) and (why := _broken(page, target)):
            yield f"{name}: link to {target}: {why}"


def targets(text: str) -> list[str]:
    """List what the links of a Markdown text point to, code left out."""
    prose = INLINE_CODE.sub("", FENCE.sub("", text))
    return LINK.findall(prose) + DEFINITION.findall(prose)


def anchors(text: str) -> set[str]:
    """List the anchors that a page's headings give, as GitHub spells them."""
    return {_slug(heading) for heading in HEADING.findall(FENCE.sub("", text))}


def _broken(page: Path, target: str) -> str | None:
    path, _, anchor = unquote(target).partition("#")
    file = page.parent / path if path else page
    if not file.exists():
        return "no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
        return "no such heading"
    return None


def _slug(heading: str) -> str:
    words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower())
    return words.replace(" ", "-")
