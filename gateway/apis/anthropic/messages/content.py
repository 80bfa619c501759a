"""Content blocks of a message."""

from collections.abc import Collection, Sequence
from typing import Any, Literal, TypeAlias

import orjson
from pydantic_core import from_json, to_json

from gateway.apis.anthropic.messages.answer import ContentBlock
from gateway.apis.anthropic.messages.message import new_call_id
from gateway.apis.anthropic.signature import sign
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta

BlockKind: TypeAlias = Literal["text", "thinking", "tool_use"]


def kind_of(delta: Delta) -> BlockKind:
    """Return the kind of the block that a delta belongs to."""
    match delta:
        case ContentDelta():
            return "text"
        case ReasoningDelta():
            return "thinking"
    return "tool_use"


def content_of(
    deltas: Sequence[Delta], cut_calls: Collection[int], *, limited: bool, omits_thinking: bool
) -> list[ContentBlock]:
    """Return the content blocks of a whole message, in the order of its text.

    A call that is not whole is text, since many clients run each call of a message. But the one that a limit has cut is
    a call with a part of its input, as in Anthropic's API, whose clients ask again with more tokens.

    Args:
        deltas: the deltas of the text.
        cut_calls: calls that are not whole, as in `FormatParser`.
        limited: True if the text ended at a limit.
        omits_thinking: True to leave out the text of the reasoning.
    """
    last = deltas[-1].index if limited and deltas and isinstance(deltas[-1], CallBegan | CallArguments) else None
    broken = {index for index in cut_calls if index != last}
    blocks: list[tuple[BlockKind, str, list[str]]] = []
    for delta in deltas:
        if isinstance(delta, CallBegan) and delta.index not in broken:
            blocks.append(("tool_use", delta.name, []))
            continue
        in_text = isinstance(delta, CallBegan | CallArguments) and delta.index in broken
        kind = "text" if in_text else kind_of(delta)
        if not blocks or blocks[-1][0] != kind:
            blocks.append((kind, "", []))
        blocks[-1][2].append(f"{delta.name}(" if isinstance(delta, CallBegan) else delta.text)
    return [_block(kind, name, "".join(texts), omitted=omits_thinking) for kind, name, texts in blocks]


def _block(kind: BlockKind, name: str, text: str, *, omitted: bool) -> ContentBlock:
    match kind:
        case "text":
            return {"type": "text", "text": text}
        case "thinking":
            thinking = "" if omitted else text
            return {"type": "thinking", "thinking": thinking, "signature": sign(thinking)}
        case "tool_use":
            return {"type": "tool_use", "id": new_call_id(), "name": name, "input": _input(text)}


def _input(arguments: str) -> Any:  # noqa: ANN401 - encoded JSON
    """Return a tool's input; the complete part of an input that a limit has cut, or `{}` of one that cannot be read.

    It is encoded here, because its integers may be too large for orjson.
    """
    try:
        parsed = from_json(arguments or "{}", allow_partial="trailing-strings")
    except ValueError:
        parsed = None
    return orjson.Fragment(to_json(parsed if isinstance(parsed, dict) else {}, inf_nan_mode="null"))
