"""All there is to read of a result that was cut: its texts, and the structured content beside them.

Structured content that the texts repeat is left out. A large result is cleaned as it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bascule.errors import ToolError
from bascule.model.content import block_text, noted
from bascule.model.json import JsonValue
from bascule.node.bridge.refusal import leak_blocked
from bascule.node.bridge.table import Target
from bascule.policy.cleaning import Slice, json_slices, text_slices
from bascule.policy.copies import Block, json_bytes, said, says_nothing_else, spelled_out
from bascule.policy.excerpt import Excerpt
from bascule.policy.leaks import Scanner
from bascule.wire.strict_json import dumps, loads


def full_output(
    sent: Excerpt, seen: Excerpt, target: Target, scanner: Scanner | None
) -> tuple[Iterator[str], int]:
    """Return the text in slices, and how many bytes it has; ``seen`` is cleaned, ``sent`` is not.

    Where nothing was left out of what was seen, that is all. Under ``leaks = "block"`` the slices
    end with a ToolError where the first credential stands.
    """
    whole = seen if seen.left_out is None else sent
    spelled = spelled_out(*whole[:2]) if seen.left_out is None else seen.left_out.spelled
    text, written = _parts(whole, spelled)
    size = len(text.encode("utf-8", "replace")) + len(written)
    if whole is seen:
        return iter((text, "\n" if text and written else "", written.decode())), size
    slices = _slices(text, written, scanner)
    if target.leaks == "block":
        slices = _passed(slices, target)
    return (piece.text for piece in slices), size


def text_of(content: Sequence[Block], structured: JsonValue) -> str:
    """Return the text of a result: its text blocks, or its structured content when it has none.

    Structured content is never added to the text that already says it.
    """
    if len(content) == 1:
        only = content[0].get("text")
        if isinstance(only, str):
            return only
    texts = [text for block in content if (text := block_text(block)) is not None]
    if texts or structured is None:
        return "\n".join(texts)
    return dumps(structured).decode()


def _parts(whole: Excerpt, spelled: frozenset[int]) -> tuple[str, bytes]:
    """Return the texts, and the JSON of structured content where they do not repeat it."""
    content, structured, _ = whole
    text = text_of(content, None)
    if structured is None or spelled:
        return text, b""
    if not any(map(block_text, content)):
        return text, b"" if text else json_bytes(structured)
    if says_nothing_else(structured, said(content, structured)):
        return text, b""
    return text, json_bytes(noted(content, structured)[1])


def _slices(text: str, written: bytes, scanner: Scanner | None) -> Iterator[Slice]:
    yield from text_slices(text, scanner)
    if text and written:
        yield Slice("\n")
    if written:
        yield from json_slices(loads(written), scanner)


def _passed(slices: Iterator[Slice], target: Target) -> Iterator[Slice]:
    for piece in slices:
        if piece.leaks.total:
            where = f"the rest of the result ({piece.leaks})"
            refusal = leak_blocked(target.server_id, target.tool, where).failure
            raise ToolError(refusal.code, refusal.message, retryable=False)
        yield piece
