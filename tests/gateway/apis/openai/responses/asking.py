"""Helpers for tests of responses: a fake engine with a chat model, and a strict reader of streams."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import orjson
from starlette.types import ASGIApp

from engine import Finished, FinishReason, GenerationRequest, Text, TokenDetail
from engine.core.output.reasoning_span import ReasoningSpan
from tests.gateway.application import gateway_of
from tests.gateway.asgi import get
from tests.gateway.fake_engine import FakeEngine, FakeGeneration, Script

PATH = "/v1/responses"
BACKGROUND = {"input": "Hi", "background": True}
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
"""A template like Qwen's: it thinks, and calls tools in tags."""

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
THOUGHT = "<think>\nhm\n</think>\n\n"


def details_of(text: str) -> tuple[TokenDetail, ...]:
    """Return the details of a text with one token per byte."""
    return tuple(TokenDetail(byte, bytes([byte]), -0.5) for byte in text.encode())


def answering(text: str, reason: FinishReason = FinishReason.STOP) -> Script:
    """Return a script that answers with this text, in pieces of three characters if it streams."""

    def script(generation: FakeGeneration) -> None:
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)] if generation.request.stream else []
        generation.put(*(Text(0, piece, details_of(piece)) for piece in pieces))
        rest = "" if pieces else text
        counts = len(text.encode()) + 1, 2
        reasoning = tokens_of_reasoning(generation.request, text)
        generation.put(Finished(0, rest, reason, *counts, details_of(rest), reasoning=reasoning))

    return script


def tokens_of_reasoning(request: GenerationRequest, text: str) -> int:
    """Return the number of tokens in the reasoning of a text, each byte of which is a token."""
    if request.reasoning is None:
        return 0
    span = ReasoningSpan(request.reasoning)
    for byte in text.encode():
        span.accept(bytes((byte,)))
    return span.tokens


def chatting(script: Script) -> FakeEngine:
    """Return a fake engine with a chat template."""
    return FakeEngine(script, TEMPLATE)


@asynccontextmanager
async def running(engine: FakeEngine, **changes: Any) -> AsyncIterator[ASGIApp]:
    """Run the application with its background tasks."""
    gateway = gateway_of(engine, **changes)
    with anyio.fail_after(20):
        async with gateway.background.open():
            yield gateway.app


async def until(app: ASGIApp, response_id: str, status: str) -> dict[str, Any]:
    """Wait until a response has a status, and return it."""
    while (response := (await get(app, f"{PATH}/{response_id}")).json)["status"] != status:
        await anyio.lowlevel.checkpoint()
    assert isinstance(response, dict)
    return response


def events_of(content: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream after checking their numbers and names."""
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
    """Return the types of the events; a run of equal types counts once."""
    types = [event["type"].removeprefix("response.") for event in events]
    return [name for at, name in enumerate(types) if at == 0 or name != types[at - 1]]


def without_ids(value: Any) -> Any:
    """Return the value without the fields that are new in every response."""
    if isinstance(value, dict):
        fresh = {"id", "call_id", "created_at", "completed_at", "item_id"}
        return {name: without_ids(part) for name, part in value.items() if name not in fresh}
    return [without_ids(part) for part in value] if isinstance(value, list) else value
