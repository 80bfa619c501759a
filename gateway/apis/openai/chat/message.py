"""The assistant's message in an answer that comes whole."""

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from engine import Finished, FinishReason
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import CallArguments, CallBegan, Content, Delta, Reasoning


def new_call_id() -> str:
    """A fresh id for a call."""
    return f"call_{uuid4().hex}"


def finish_reason(end: Finished, *, called: bool, deprecated: bool) -> str:
    """Why a choice ended. That it was cut comes before that it calls: the call may not be whole."""
    if end.reason is FinishReason.LENGTH or not called:
        return end.reason
    return "function_call" if deprecated else "tool_calls"


def read_message(prompt: ChatPrompt, text: str, *, deprecated: bool) -> dict[str, Any]:
    """The message in a choice's whole text. With `deprecated`, a call is the `function_call` of old."""
    parser = prompt.parser()
    return _Message([*parser.feed(text), *parser.finish()]).plain(deprecated=deprecated)


class _Message:
    def __init__(self, deltas: Iterable[Delta]) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        for delta in deltas:
            self._add(delta)

    def _add(self, delta: Delta) -> None:
        match delta:
            case Content(text):
                self._content.append(text)
            case Reasoning(text):
                self._reasoning.append(text)
            case CallBegan(_, name):
                self._names.append(name)
                self._arguments.append([])
            case CallArguments(index, text):
                self._arguments[index].append(text)

    def plain(self, *, deprecated: bool) -> dict[str, Any]:
        content = "".join(self._content) or (None if self._names else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        functions = [
            {"name": name, "arguments": "".join(arguments)}
            for name, arguments in zip(self._names, self._arguments, strict=True)
        ]
        if deprecated and functions:
            message["function_call"] = functions[0]
        elif functions:
            message["tool_calls"] = [
                {"id": new_call_id(), "type": "function", "function": function} for function in functions
            ]
        return message
