"""Conversion of a conversation's items to chat messages."""

from collections.abc import Iterable
from typing import Any

from gateway.apis.fields.nested import refusal
from gateway.apis.openai.responses.items import (
    Item,
    MessagePart,
    OutputCall,
    OutputReasoningText,
    ReasoningSummary,
    StoredCallOutput,
)
from gateway.chat.template_capabilities import TemplateMessage


def messages_of(instructions: str | None, items: Iterable[Item]) -> tuple[TemplateMessage, ...]:
    """Return the items as messages. The model's output in one turn (reasoning, text, calls) is one message.

    Raises `RequestError` for the output of a call without an earlier item for the call.
    """
    transcript = _Transcript()
    if instructions:
        transcript.messages.append({"role": "system", "content": instructions})
    for item in items:
        transcript.add(item)
    return tuple(transcript.messages)


class _Transcript:
    """Conversion of the items in order, with a record of the calls so far."""

    def __init__(self) -> None:
        self.messages: list[TemplateMessage] = []
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
            case "function_call":
                self._names[item["call_id"]] = item["name"]
                self._turn().setdefault("tool_calls", []).append(_call(item))
            case "function_call_output":
                self.messages.append(self._output(item))

    def _turn(self, before: tuple[str, ...] = ()) -> TemplateMessage:
        """Return the assistant's last message, or a new one if the last has any of the fields in `before`."""
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant" or any(last.get(field) is not None for field in before):
            last = {"role": "assistant", "content": None}
            self.messages.append(last)
        return last

    def _output(self, item: StoredCallOutput) -> TemplateMessage:
        call = item["call_id"]
        if call not in self._names:
            raise refusal("input", f"no function call before its output has the call_id {call[:100]!r}")
        return {"role": "tool", "tool_call_id": call, "name": self._names[call], "content": _words(item["output"])}


def _words(parts: Iterable[MessagePart | OutputReasoningText | ReasoningSummary]) -> str:
    return "\n".join(part["refusal"] if part["type"] == "refusal" else part["text"] for part in parts)


def _call(item: OutputCall) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}
