"""Parts of a message that whole answers and streams share."""

from collections.abc import Sequence
from uuid import uuid4

from engine import Finished, FinishReason
from gateway.apis.anthropic.messages.answer import ContentBlock, DeltaUsage, Message, Stop, StopReason
from gateway.apis.anthropic.messages.call import MessageOptions


def new_call_id() -> str:
    """Return a new id for a tool call."""
    return f"toolu_{uuid4().hex}"


def message(model: str, content: list[ContentBlock], stop: Stop | None, usage: DeltaUsage) -> Message:
    """Return a message, whole or as it begins."""
    return {
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None if stop is None else stop["stop_reason"],
        "stop_sequence": None if stop is None else stop["stop_sequence"],
        "usage": {
            **usage,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "service_tier": "standard",
        },
    }


def usage(prompt_tokens: Sequence[int], end: Finished | None = None) -> DeltaUsage:
    """Return the token counts of a message, before or at its end.

    No token counts as written to the cache: here every prompt is, and it costs nothing.
    """
    cached = 0 if end is None else end.cached
    return {
        "input_tokens": sum(prompt_tokens) - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": 0 if end is None else end.tokens,
        "output_tokens_details": {"thinking_tokens": 0 if end is None else end.reasoning},
    }


def stop_of(end: Finished, options: MessageOptions, *, called: bool) -> Stop:
    """Return the reason for the end. A limit has priority over calls. `called` if there are any, all of them whole."""
    sequence = end.stop if isinstance(end.stop, str) else None
    if end.reason is FinishReason.LENGTH:
        reached = end.tokens >= options.max_tokens
        return {"stop_reason": "max_tokens" if reached else "model_context_window_exceeded", "stop_sequence": None}
    if called:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    reason: StopReason = "end_turn" if sequence is None else "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": sequence}
