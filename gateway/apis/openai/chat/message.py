"""The assistant's message in a whole answer."""

from collections.abc import Iterable
from uuid import uuid4

from engine import Finished, FinishReason
from gateway.apis.answers.deltas import read_deltas
from gateway.apis.openai.chat.answer import ChatFinishReason, ChatMessage, FunctionCallAnswer
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta


def new_call_id() -> str:
    """Return a new id for a tool call."""
    return f"call_{uuid4().hex}"


def finish_reason(end: Finished, *, called: bool, deprecated: bool) -> ChatFinishReason:
    """Return the finish reason of a choice. The length limit has priority over a call, which may be cut."""
    if end.reason is FinishReason.LENGTH or not called:
        return end.reason
    return "function_call" if deprecated else "tool_calls"


async def read_message(prompt: ChatPrompt, text: str, *, deprecated: bool) -> ChatMessage:
    """Return the message of a choice's whole text. With `deprecated`, a call becomes the old `function_call`.

    Lets other tasks run while it reads a long text.
    """
    collector = _Collector()
    collector.add(await read_deltas(prompt, text))
    return collector.message(deprecated=deprecated)


class _Collector:
    """Joins the deltas of one message."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._names: list[str] = []
        self._arguments: list[list[str]] = []

    def add(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            self._add(delta)

    def message(self, *, deprecated: bool) -> ChatMessage:
        content = "".join(self._content) or (None if self._names else "")
        message: ChatMessage = {"role": "assistant", "content": content, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        functions = self._functions()
        if deprecated and functions:
            message["function_call"] = functions[0]
        elif functions:
            message["tool_calls"] = [
                {"id": new_call_id(), "type": "function", "function": function} for function in functions
            ]
        return message

    def _add(self, delta: Delta) -> None:
        match delta:
            case ContentDelta(text):
                self._content.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case CallBegan(_, name):
                self._names.append(name)
                self._arguments.append([])
            case CallArguments(index, text):
                self._arguments[index].append(text)

    def _functions(self) -> list[FunctionCallAnswer]:
        return [
            {"name": name, "arguments": "".join(arguments)}
            for name, arguments in zip(self._names, self._arguments, strict=True)
        ]
