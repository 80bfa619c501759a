"""What tests of responses have in common: a fake engine whose model can chat, and streams read strictly."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from engine import Finished, FinishReason, Text, TokenDetail
from tests.gateway.fake_engine import MODEL, FakeEngine, FakeGeneration, Script

PATH = "/v1/responses"
TEMPLATE = (
    "{% for tool in tools or [] %}<tool>{{ tool.function.name }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}'
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""In the manner of Qwen's: it thinks, and calls in tags."""

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
THOUGHT = "<think>\nhm\n</think>\n\n"


def details_of(text: str) -> tuple[TokenDetail, ...]:
    """Each byte of it a token."""
    return tuple(TokenDetail(byte, bytes([byte]), -0.5) for byte in text.encode())


def answering(text: str, reason: FinishReason = FinishReason.STOP) -> Script:
    """The engine says this, in pieces of three characters if it is asked to stream."""

    def script(generation: FakeGeneration) -> None:
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)] if generation.request.stream else []
        generation.put(*(Text(0, piece, details_of(piece)) for piece in pieces))
        rest = "" if pieces else text
        generation.put(Finished(0, rest, reason, len(text.encode()) + 1, 2, details_of(rest)))

    return script


def chatting(script: Script) -> FakeEngine:
    """A fake engine with a chat template."""
    engine = FakeEngine(script)
    engine.model = replace(MODEL, chat_template=TEMPLATE)
    return engine


def events_of(content: bytes) -> list[dict[str, Any]]:
    """The events of a stream, whose numbers and names must be right."""
    *blocks, end = content.split(b"\n\n")
    assert end == b""
    events = []
    for number, block in enumerate(block for block in blocks if not block.startswith(b":")):
        name, data = block.split(b"\n")
        event = orjson.loads(data.removeprefix(b"data: "))
        assert name.decode() == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def names(events: Sequence[dict[str, Any]]) -> list[str]:
    """Their types, those of deltas that follow each other once."""
    types = [event["type"].removeprefix("response.") for event in events]
    return [name for at, name in enumerate(types) if at == 0 or name != types[at - 1]]


def without_ids(value: Any) -> Any:
    """The same without what is new in every response."""
    if isinstance(value, dict):
        fresh = {"id", "call_id", "created_at", "completed_at", "item_id"}
        return {name: without_ids(part) for name, part in value.items() if name not in fresh}
    return [without_ids(part) for part in value] if isinstance(value, list) else value
