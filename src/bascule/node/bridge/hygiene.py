"""What comes back is cleaned before anybody sees it: characters, credentials, size.

Content blocks keep their shape, unknown kinds included; a text that was cut stays readable behind a
handle for the life of the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bascule.errors import MalformedReply
from bascule.model.content import block_text, noted
from bascule.model.json import JsonValue, is_array, is_object
from bascule.model.outcome import Failed, Failure, Outcome, Success, Truncation, failure
from bascule.node.bridge.output_schema import OutputCheck, misfit, refused
from bascule.node.bridge.refusal import leak_blocked
from bascule.node.bridge.table import Target
from bascule.policy.characters import is_plain, neutralise
from bascule.policy.copies import Block, said, says_nothing_else, spelled_out
from bascule.policy.leaks import Scanner
from bascule.policy.output import CutContent, cap_content, cut_marker
from bascule.wire.strict_json import dumps

if TYPE_CHECKING:
    from bascule.node.bridge.budgets import Passage
    from bascule.node.bridge.record import CallRecord
    from bascule.node.bridge.session import Session

T = TypeVar("T")


def clean(
    raw: Block, target: Target, session: Session, slot: Passage, record: CallRecord
) -> Outcome:
    """Turn a raw result into the outcome its caller gets."""
    ordinary = _ordinary(raw, target, session, slot)
    if ordinary is not None:
        _spend(len(ordinary), 0, session, record)
        return Success(
            text=ordinary,
            content=({"type": "text", "text": ordinary},),
            request_id=record.request_id,
            revision=record.revision,
            warnings=tuple(record.warnings),
        )
    structured = raw.get("structuredContent")
    content, warnings = _cleaned_blocks(_blocks(raw))
    if structured is not None:
        structured, more = _cleaned_value(structured)
        warnings += more
    if target.leaks != "off":
        content, structured = _without_leaks(content, structured, target, session, warnings)
    warnings += record.warnings
    capped = cap_content(content, structured, slot.max_output_bytes, slot.max_media_bytes)
    _spend(capped.shown, capped.media_shown, session, record)
    cut = None
    if capped.truncated:
        cut = _truncation(capped, session.outputs.keep(_full_text(content, structured)))
        record.cut = True
    error = None
    if raw.get("isError") is True:
        error = failure("mcp_tool_error", _text(capped) or "the tool reported an error")
    elif cut is None and target.output is not None:
        error = _promised(target.output, raw, session, record, warnings)
    return _outcome(capped, cut, warnings, error, record)


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


def _ordinary(raw: Block, target: Target, session: Session, slot: Passage) -> str | None:
    """Return the text of a result that is one short plain text with nothing to clean: most are."""
    content: Any = raw.get("content")
    if content.__class__ is not list or len(content) != 1 or _says_more(raw, target):
        return None
    block: Any = content[0]
    if block.__class__ is not dict or len(block) != 2 or block.get("type") != "text":
        return None
    text: Any = block.get("text")
    if text.__class__ is not str or not text.isascii():
        return None
    encoded: bytes = text.encode()
    if len(encoded) > slot.max_output_bytes or not is_plain(encoded):
        return None
    if target.leaks != "off" and session.core.scanner.suspect(encoded):
        return None
    return text


def _says_more(raw: Block, target: Target) -> bool:
    """Say whether there is more to a result than its content, or should be."""
    if target.output is not None or raw.get("isError") is True:
        return True
    return raw.get("structuredContent") is not None


def _spend(size: int, media: int, session: Session, record: CallRecord) -> None:
    """Count what was given; media are no output that a model reads."""
    record.output_bytes = size + media
    session.spending.output_bytes += size


def _outcome(
    capped: CutContent,
    cut: Truncation | None,
    warnings: list[str],
    error: Failure | None,
    record: CallRecord,
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


def _full_text(content: list[Block], structured: JsonValue) -> str:
    """Return all there is to read: structured content too, unless the text repeats it."""
    text = text_of(content, structured)
    if structured is None or _repeated(content, structured):
        return text
    return f"{text}\n{dumps(noted(content, structured)[1]).decode()}"


def _repeated(content: list[Block], structured: JsonValue) -> bool:
    if spelled_out(content, structured) or not any(map(block_text, content)):
        return True  # without a text block the text is the structured content itself
    return says_nothing_else(structured, said(content, structured))


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


def _cleaned_blocks(blocks: list[Block]) -> tuple[list[Block], list[str]]:
    """Make the characters of every block harmless."""
    warnings: list[str] = []
    cleaned: list[Block] = []
    for block in blocks:
        text = block.get("text")
        if len(block) == 2 and block.get("type") == "text" and isinstance(text, str):
            harmless = neutralise(text)
            if harmless.counts:
                warnings.append(_characters(harmless.counts.items()))
                block = {**block, "text": harmless.text}
            cleaned.append(block)
            continue
        value, more = _cleaned_value(block)
        cleaned.append(value)
        warnings += more
    return cleaned, warnings


def _cleaned_value(value: T) -> tuple[T, list[str]]:
    counts: dict[str, int] = {}
    cleaned = _walk(value, counts)
    return cleaned, [_characters(counts.items())] if counts else []


def _walk(value: object, counts: dict[str, int]) -> Any:
    if isinstance(value, str):
        harmless = neutralise(value)
        for kind, number in harmless.counts.items():
            counts[kind] = counts.get(kind, 0) + number
        return harmless.text
    if is_object(value):
        return {_walk(key, counts): _walk(item, counts) for key, item in value.items()}
    if is_array(value):
        return [_walk(item, counts) for item in value]
    return value


def _characters(counts: Iterable[tuple[str, int]]) -> str:
    listed = ", ".join(f"{number} {kind}" for kind, number in counts)
    return f"characters made harmless: {listed}"


def _without_leaks(
    content: list[Block],
    structured: JsonValue,
    target: Target,
    session: Session,
    warnings: list[str],
) -> tuple[list[Block], JsonValue]:
    scanner = session.core.scanner
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
