"""The assistant's message in a whole answer."""

from collections.abc import Iterable
from uuid import uuid4

from engine import Finished, FinishReason
from gateway.apis.answers.deltas import read_deltas
from gateway.apis.openai.chat.answer import ChatFinishReason, ChatMessage, CustomToolCallAnswer, ToolCallAnswer
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta


def new_call_id() -> str:
    """Return a new id for a tool call."""
    return f"call_{uuid4().hex}"


def finish_reason(end: Finished, *, called: bool, deprecated: bool) -> ChatFinishReason:
    """Return the finish reason of a choice. The length limit has priority over a call.

    `called` if there are calls, all of them whole, so that no client runs one that a stop string has cut.
    """
    if end.reason is FinishReason.LENGTH or not called:
        return end.reason
    return "function_call" if deprecated else "tool_calls"


async def read_message(prompt: ChatPrompt, text: str, *, deprecated: bool) -> tuple[ChatMessage, bool]:
    """Return the message of a choice's whole text, and True if it has calls, all of them whole.

    With `deprecated`, a call becomes the old `function_call`. Lets other tasks run while it reads a long text.
    """
    collector, parser = _Collector(), prompt.parsing.parser()
    collector.add(await read_deltas(parser, text))
    return collector.message(deprecated=deprecated), collector.called and parser.cut_call is None


class _Collector:
    """Joins the deltas of one message."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._began: list[CallBegan] = []
        self._arguments: list[list[str]] = []

    @property
    def called(self) -> bool:
        return bool(self._began)

    def add(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            self._add(delta)

    def message(self, *, deprecated: bool) -> ChatMessage:
        content = "".join(self._content) or (None if self._began else "")
        message: ChatMessage = {"role": "assistant", "content": content, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        calls = [
            _call(began, "".join(arguments)) for began, arguments in zip(self._began, self._arguments, strict=True)
        ]
        if deprecated and calls and calls[0]["type"] == "function":
            message["function_call"] = calls[0]["function"]
        elif calls:
            message["tool_calls"] = calls
        return message

    def _add(self, delta: Delta) -> None:
        match delta:
            case ContentDelta(text):
                self._content.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case CallBegan():
                self._began.append(delta)
                self._arguments.append([])
            case CallArguments(index, text):
                self._arguments[index].append(text)


def _call(began: CallBegan, text: str) -> ToolCallAnswer | CustomToolCallAnswer:
    if began.custom:
        return {"id": new_call_id(), "type": "custom", "custom": {"name": began.name, "input": text}}
    return {"id": new_call_id(), "type": "function", "function": {"name": began.name, "arguments": text}}
