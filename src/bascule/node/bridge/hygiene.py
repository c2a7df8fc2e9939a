"""What comes back is cleaned before anybody sees it: characters, credentials, size.

Content blocks keep their shape, unknown kinds included; a text that was cut stays readable behind a
handle for the life of the session. Of a large result only what the cap can show is cleaned here,
and judged; the rest is when it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bascule.errors import MalformedReply
from bascule.model.call import NOTHING_BESIDE, Beside
from bascule.model.content import block_text
from bascule.model.json import JsonObject, JsonValue, is_array, is_object
from bascule.model.outcome import Failed, Failure, Outcome, Success, Truncation, failure
from bascule.node.bridge.extras import CONTENT, NOTHING, Extra, extra_of
from bascule.node.bridge.full_output import full_output, text_of
from bascule.node.bridge.kept_schema import keeping_schema
from bascule.node.bridge.output_schema import OutputCheck, misfit, refused
from bascule.node.bridge.refusal import leak_blocked
from bascule.node.bridge.table import Target
from bascule.policy.characters import is_plain, neutralise
from bascule.policy.cleaning import clean_value, told_of
from bascule.policy.copies import Block
from bascule.policy.excerpt import Excerpt, excerpt, suffices
from bascule.policy.leaks import Scanner
from bascule.policy.output import CutContent, cap_content, cut_marker, weight
from bascule.wire.era import META
from bascule.wire.strict_json import dumps

if TYPE_CHECKING:
    from bascule.node.bridge.budgets import Passage
    from bascule.node.bridge.record import CallRecord
    from bascule.node.bridge.session import Session

T = TypeVar("T")

# How much more than its cap is looked at of a result that is not searched for credentials.
_MARGIN = 1024
# What an ordinary result may have, and of that what is of no use to anybody else.
_USUAL = CONTENT | {"_meta"}
_NOT_PASSED = frozenset({META + "serverInfo"})


def clean(raw: Block, target: Target, passage: Passage, beside: Beside = NOTHING_BESIDE) -> Outcome:
    """Turn a raw result into the outcome its caller gets."""
    session = passage.session
    ordinary = _ordinary(raw, target, passage)
    if ordinary is not None:
        text: str = ordinary["text"]
        passage.output_bytes = size = len(text)
        session.spending.output_bytes += size
        return Success(
            text=text,
            content=(ordinary,),
            request_id=passage.request_id,
            revision=passage.revision,
            warnings=tuple(passage.warnings) if passage.warnings else (),
        )
    sent = Excerpt(_blocks(raw), raw.get("structuredContent"))
    scanner = None if target.leaks == "off" else session.core.scanner
    most = passage.max_output_bytes
    seen, warnings = _looked_at(sent, target, scanner, most)
    warnings += passage.warnings
    capped = cap_content(*seen[:2], most, target.grant.budgets.max_media_bytes, seen.left_out)
    error = None
    if raw.get("isError") is True:
        error = failure("mcp_tool_error", _text(capped) or "the tool reported an error")
    elif not capped.truncated:
        if target.output is not None:
            error = _promised(target.output, raw, session, passage, warnings)
    elif beside.keeps_schema:
        capped, error = _kept_schema(sent, seen, capped, most, target, scanner)
    cut = None
    if capped.truncated:
        full = full_output(sent, seen, target, scanner)
        cut = _truncation(capped, session.outputs.keep(*full))
        passage.cut = True
    extra = _extra(raw, capped, most, target, scanner)
    passage.output_bytes = capped.shown + capped.media_shown + extra.size
    session.spending.output_bytes += capped.shown + extra.size  # media are not read by a model
    warnings += extra.warnings
    return _outcome(capped, cut, warnings, error, passage, extra.members)


def _kept_schema(
    sent: Excerpt,
    seen: Excerpt,
    capped: CutContent,
    limit: int,
    target: Target,
    scanner: Scanner | None,
) -> tuple[CutContent, Failure | None]:
    """Return a cut result that is still what its tool promises, or why there is none."""
    if sent.structured is None or target.grant.tool.output_schema is None:
        return capped, None
    kept = keeping_schema(sent, seen, capped, limit, target, scanner)
    if kept is not None:
        return kept, None
    cut = _truncation(capped, None).error
    message = f"{cut.message}, and no less of it fits the tool's output schema"
    return capped._replace(structured=None), failure(cut.code, message)


def _extra(
    raw: Block, capped: CutContent, limit: int, target: Target, scanner: Scanner | None
) -> Extra:
    """Return what a result has besides its content, in the room that is left."""
    if raw.keys() <= CONTENT:
        return NOTHING
    used = weight(capped.content, capped.structured) if capped.truncated else capped.shown
    return extra_of(raw, limit - used, target, scanner)


def _promised(
    output: OutputCheck, raw: Block, session: Session, record: CallRecord, warnings: list[str]
) -> Failure | None:
    """Return the failure that a result is which its tool does not promise, or warn of it."""
    if output.unusable is not None:
        warnings.append(session.core.presentable_text(output.unusable))
        return None
    problems = output.problems(raw.get("structuredContent"))
    if not problems:
        return None
    record.misfit = True
    if output.refuses:
        return session.core.presentable(refused(problems))
    warnings.append(session.core.presentable_text(misfit(problems)))
    return None


def _truncation(capped: CutContent, handle: str | None) -> Truncation:
    shown, total = capped.shown + capped.media_shown, capped.total + capped.media_total
    return Truncation(shown=shown, total=total, handle=handle)


def _ordinary(raw: Block, target: Target, passage: Passage) -> dict[str, Any] | None:
    """Return the block of a result that is one short plain text with nothing to clean: most are."""
    content: Any = raw.get("content")
    if content.__class__ is not list or len(content) != 1 or target.output is not None:
        return None
    if len(raw) > 1 and (
        not raw.keys() <= _USUAL
        or raw.get("isError") is True
        or raw.get("structuredContent") is not None
        or ((meta := raw.get("_meta")) and not (type(meta) is dict and meta.keys() <= _NOT_PASSED))
    ):
        return None
    block: Any = content[0]
    if block.__class__ is not dict or len(block) != 2 or block.get("type") != "text":
        return None
    text: Any = block.get("text")
    if text.__class__ is not str or not text.isascii() or len(text) > passage.max_output_bytes:
        return None
    encoded: bytes = text.encode()
    searched = target.leaks != "off"
    if not is_plain(encoded) or (searched and passage.session.core.scanner.suspect(encoded)):
        return None
    return block


def _outcome(
    capped: CutContent,
    cut: Truncation | None,
    warnings: list[str],
    error: Failure | None,
    record: CallRecord,
    extra: JsonObject,
) -> Outcome:
    content, structured = capped.content, capped.structured
    text = _text(capped)
    if error is None:
        return Success(
            text=text,
            content=tuple(content),
            structured=structured,
            truncated=cut,
            request_id=record.request_id,
            revision=record.revision,
            warnings=tuple(warnings),
            extra=extra,
        )
    return Failed(
        error=error,
        text=text,
        content=tuple(content),
        structured=structured,
        truncated=cut,
        request_id=record.request_id,
        revision=record.revision,
        warnings=tuple(warnings),
        extra=extra,
    )


def _text(capped: CutContent) -> str:
    """Return the text of a result; of structured content alone that was cut, its JSON's start."""
    structured = capped.structured
    if (
        capped.truncated
        and not any(block_text(block) for block in capped.content)
        and is_object(structured)
    ):
        start, cut = structured.get("json"), structured.get("truncated")
        if isinstance(start, str) and is_object(cut):
            return start + cut_marker(cut["shown"], cut["total"])
    return text_of(capped.content, structured)


def _blocks(raw: Block) -> list[Block]:
    content = raw.get("content")
    if content is None:
        return []
    if not is_array(content):
        raise MalformedReply("the tool's content is not a list")
    return [block if isinstance(block, dict) else _wrapped(block) for block in content]


def _wrapped(value: JsonValue) -> Block:
    """Keep what is no block at all as one of an unknown kind."""
    return {"type": "unknown", "value": value}


def _looked_at(
    sent: Excerpt, target: Target, scanner: Scanner | None, limit: int
) -> tuple[Excerpt, list[str]]:
    """Return as much of a result as its cap can show, cleaned, and what was found in it."""
    needed = limit + (_MARGIN if scanner is None else scanner.reach)
    room = 2 * needed - limit
    while True:
        part = excerpt(*sent[:2], limit, room)
        content, warnings = _cleaned_blocks(part.content)
        structured = part.structured
        if structured is not None:
            structured, more = _cleaned_value(structured)
            warnings += more
        if scanner is not None:
            content, structured = _without_leaks(content, structured, target, scanner, warnings)
        seen = Excerpt(content, structured, part.left_out)
        if suffices(seen, needed):
            return seen, warnings
        room *= 2


def _cleaned_blocks(blocks: Sequence[Block]) -> tuple[list[Block], list[str]]:
    """Make the characters of every block harmless."""
    warnings: list[str] = []
    cleaned: list[Block] = []
    for block in blocks:
        text = block.get("text")
        if len(block) == 2 and block.get("type") == "text" and isinstance(text, str):
            harmless = neutralise(text)
            if harmless.counts:
                warnings.append(told_of(harmless.counts))
                block = {**block, "text": harmless.text}
            cleaned.append(block)
            continue
        value, more = _cleaned_value(block)
        cleaned.append(value)
        warnings += more
    return cleaned, warnings


def _cleaned_value(value: T) -> tuple[T, list[str]]:
    cleaned = clean_value(value, None)
    return cleaned.value, [told_of(cleaned.characters)] if cleaned.characters else []


def _without_leaks(
    content: list[Block],
    structured: JsonValue,
    target: Target,
    scanner: Scanner,
    warnings: list[str],
) -> tuple[list[Block], JsonValue]:
    if not _suspect(content, structured, scanner):
        return content, structured
    masked, leaks = scanner.mask_json((content, structured))
    if not leaks.total:
        return content, structured
    if target.leaks == "block":
        raise leak_blocked(target.server_id, target.tool, f"the result ({leaks})")
    warnings.append(f"credentials masked in the result: {leaks}")
    content, structured = masked
    return content, structured


def _suspect(content: list[Block], structured: JsonValue, scanner: Scanner) -> bool:
    if structured is None and len(content) == 1 and len(content[0]) == 2:
        text = content[0].get("text")
        if isinstance(text, str) and content[0].get("type") == "text":
            return scanner.suspect(text.encode("utf-8", "replace"))
    return scanner.suspect(dumps([content, structured]))
