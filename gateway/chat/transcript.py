"""Conversion of the items of OpenAI's responses to chat messages."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from engine import RequestError
from gateway.chat.custom_inputs import arguments_of
from gateway.chat.template_capabilities import TemplateMessage, template_call

Item: TypeAlias = dict[str, Any]
"""An item in the format in which responses store it: `gateway.apis.openai.responses.items.Item`."""


def with_items(messages: Iterable[TemplateMessage], items: Iterable[Item]) -> tuple[TemplateMessage, ...]:
    """Return the messages and those of the items after them.

    The model's output in one turn (reasoning, text, calls) is one message.

    Args:
        messages: messages before the items.
        items: items in the order of the conversation.

    Raises:
        RequestError: if the output of a call has no earlier item for the call.
    """
    transcript = _Transcript(messages)
    for item in items:
        transcript.add(item)
    return tuple(transcript.messages)


class _Transcript:
    """Conversion of the items in order, with a record of the calls so far."""

    def __init__(self, messages: Iterable[TemplateMessage]) -> None:
        self.messages = list(messages)
        self._names: dict[str, str] = {}  # names of the called functions, by call id

    def add(self, item: Item) -> None:
        match item["type"]:
            case "message" if item["role"] == "assistant":
                self._turn(before=("content", "tool_calls"))["content"] = _words(item["content"])
            case "message":
                self.messages.append({"role": item["role"], "content": _words(item["content"])})
            case "reasoning":
                turn = self._turn(before=("reasoning_content", "content", "tool_calls"))
                turn["reasoning_content"] = _words(item["content"] or item["summary"])
            case "function_call" | "custom_tool_call":
                self._names[item["call_id"]] = item["name"]
                self._turn().setdefault("tool_calls", []).append(_call(item))
            case "function_call_output" | "custom_tool_call_output":
                self.messages.append(self._output(item))

    def _turn(self, before: tuple[str, ...] = ()) -> TemplateMessage:
        """Return the assistant's last message, or a new one if the last has any of the fields in `before`."""
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant" or any(last.get(field) is not None for field in before):
            last = {"role": "assistant", "content": None}
            self.messages.append(last)
        return last

    def _output(self, item: Item) -> TemplateMessage:
        call = item["call_id"]
        if call not in self._names:
            message = f"input: no function call before its output has the call_id {call[:100]!r}"
            raise RequestError(message, code="invalid_value", param="input")
        return {"role": "tool", "tool_call_id": call, "name": self._names[call], "content": _words(item["output"])}


def _words(parts: Iterable[Item]) -> str:
    return "\n".join(part["refusal"] if part["type"] == "refusal" else part["text"] for part in parts)


def _call(item: Item) -> Item:
    arguments = item["arguments"] if item["type"] == "function_call" else arguments_of(item["input"])
    return template_call(item["call_id"], item["name"], arguments)
