"""Parts of a chat completion that whole answers and streams share, and the message of a whole answer."""

from collections.abc import Iterable, Iterator
from uuid import uuid4

from engine import Finished, FinishReason, TokenDetail
from gateway.apis.answers.deltas import read_deltas
from gateway.apis.answers.pieces import HOLE, filled
from gateway.apis.answers.token_logprobs import token_logprobs_in_pieces
from gateway.apis.openai.chat.answer import (
    ChatFinishReason,
    ChatLogprobs,
    ChatMessage,
    CustomToolCallAnswer,
    ToolCallAnswer,
)
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, ReasoningDelta

_LOGPROBS: ChatLogprobs = {"content": HOLE, "refusal": None}


def new_call_id() -> str:
    """Return a new id for a tool call."""
    return f"call_{uuid4().hex}"


def finish_reason(end: Finished, *, called: bool, deprecated: bool) -> ChatFinishReason:
    """Return the finish reason of a choice. The length limit has priority over a call.

    `called` if there are calls, all of them whole, so that no client runs one that a stop string or a mistake has cut.
    """
    if end.reason is FinishReason.LENGTH or not called:
        return end.reason
    return "function_call" if deprecated else "tool_calls"


def chat_logprobs(details: Iterable[TokenDetail]) -> Iterator[bytes]:
    """Yield the JSON of the `logprobs` of a choice, or of one chunk of it, in pieces."""
    return filled(_LOGPROBS, token_logprobs_in_pieces(details))


async def read_message(prompt: ChatPrompt, text: str, *, deprecated: bool) -> tuple[ChatMessage, bool]:
    """Return the message of a choice's whole text, and True if it has calls, all of them whole.

    With `deprecated`, a call becomes the old `function_call`. Lets other tasks run while it reads a long text.
    """
    parser = prompt.parsing.parser()
    content, reasoning, calls = list[str](), list[str](), list[tuple[CallBegan, list[str]]]()
    for delta in await read_deltas(parser, text):
        match delta:
            case ContentDelta(part):
                content.append(part)
            case ReasoningDelta(part):
                reasoning.append(part)
            case CallBegan():
                calls.append((delta, []))
            case CallArguments(index, part):
                calls[index][1].append(part)
    message: ChatMessage = {
        "role": "assistant",
        "content": "".join(content) or (None if calls else ""),
        "refusal": None,
    }
    if reasoning:
        message["reasoning_content"] = "".join(reasoning)
    _add_calls(message, [_call(began, "".join(parts)) for began, parts in calls], deprecated=deprecated)
    return message, bool(calls) and not parser.cut_calls


def _add_calls(message: ChatMessage, calls: list[ToolCallAnswer | CustomToolCallAnswer], *, deprecated: bool) -> None:
    if deprecated and calls and calls[0]["type"] == "function":
        message["function_call"] = calls[0]["function"]
    elif calls:
        message["tool_calls"] = calls


def _call(began: CallBegan, text: str) -> ToolCallAnswer | CustomToolCallAnswer:
    if began.custom:
        return {"id": new_call_id(), "type": "custom", "custom": {"name": began.name, "input": text}}
    return {"id": new_call_id(), "type": "function", "function": {"name": began.name, "arguments": text}}
