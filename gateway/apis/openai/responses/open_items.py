"""Output items that are being generated, and their events."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

import orjson
from typing_extensions import override

from gateway.apis.answers.shapes import ChosenLogprob
from gateway.apis.openai.responses.events import CustomInputDone, InItem, InPart, ItemEvent, ResponseEvent
from gateway.apis.openai.responses.items import (
    ItemStatus,
    OutputCall,
    OutputCustomCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputReasoningText,
    encode_reasoning,
    in_namespace,
    new_id,
    output_text,
)


class OpenItem(ABC):
    """An item that is being generated."""

    prefix: ClassVar[str]
    """Beginning of its id."""

    def __init__(self, index: int, numbers: Iterator[int]) -> None:
        """Begin an item.

        Args:
            index: its index in the output.
            numbers: sequence numbers of the stream's events.
        """
        self._id = new_id(self.prefix)
        self._index = index
        self._numbers = numbers
        self._text: list[str] = []

    @abstractmethod
    def begin(self) -> list[ResponseEvent]:
        """Return the events at the start of the item."""

    @abstractmethod
    def append(self, text: str, logprobs: Sequence[ChosenLogprob]) -> list[ResponseEvent]:
        """Append text and return its event. Only messages keep `logprobs`."""

    @abstractmethod
    def end(self, status: ItemStatus) -> list[ResponseEvent]:
        """Return the events at the end of the item, which repeat its whole content."""

    @abstractmethod
    def item(self, status: ItemStatus) -> OutputItem:
        """Return the item with its content so far."""

    def _added(self, item: OutputItem) -> ItemEvent:
        return {
            "type": "response.output_item.added",
            "sequence_number": next(self._numbers),
            "output_index": self._index,
            "item": item,
        }

    def _done(self, item: OutputItem) -> ItemEvent:
        return {**self._added(item), "type": "response.output_item.done"}

    def _in_item(self) -> InItem:
        return {"sequence_number": next(self._numbers), "item_id": self._id, "output_index": self._index}

    def _in_part(self) -> InPart:
        return {**self._in_item(), "content_index": 0}


class OpenMessage(OpenItem):
    """A message that is being generated."""

    prefix = "msg"

    def __init__(self, index: int, numbers: Iterator[int]) -> None:
        super().__init__(index, numbers)
        self._logprobs: list[bytes] = []  # encoded once, since several events repeat them

    @override
    def begin(self) -> list[ResponseEvent]:
        return [
            self._added({**self.item("in_progress"), "content": []}),
            {"type": "response.content_part.added", **self._in_part(), "part": output_text("")},
        ]

    @override
    def append(self, text: str, logprobs: Sequence[ChosenLogprob]) -> list[ResponseEvent]:
        self._text.append(text)
        self._logprobs += map(orjson.dumps, logprobs)
        shown = _as_list(self._logprobs[-len(logprobs) :] if logprobs else ())
        return [{"type": "response.output_text.delta", **self._in_part(), "delta": text, "logprobs": shown}]

    @override
    def end(self, status: ItemStatus) -> list[ResponseEvent]:
        item = self.item(status)
        (part,) = item["content"]
        return [
            {
                "type": "response.output_text.done",
                **self._in_part(),
                "text": part["text"],
                "logprobs": part["logprobs"],
            },
            {"type": "response.content_part.done", **self._in_part(), "part": part},
            self._done(item),
        ]

    @override
    def item(self, status: ItemStatus) -> OutputMessage:
        content = [output_text("".join(self._text), _as_list(self._logprobs))]
        return {"id": self._id, "type": "message", "role": "assistant", "status": status, "content": content}


class OpenReasoning(OpenItem):
    """Reasoning that is being generated, unchanged from the model's output."""

    prefix = "rs"

    @override
    def begin(self) -> list[ResponseEvent]:
        return [
            self._added({**self.item("in_progress"), "content": []}),
            {"type": "response.content_part.added", **self._in_part(), "part": _reasoning_text("")},
        ]

    @override
    def append(self, text: str, logprobs: Sequence[ChosenLogprob]) -> list[ResponseEvent]:
        self._text.append(text)
        return [{"type": "response.reasoning_text.delta", **self._in_part(), "delta": text}]

    @override
    def end(self, status: ItemStatus) -> list[ResponseEvent]:
        item = self.item(status)
        (part,) = item["content"]
        return [
            {"type": "response.reasoning_text.done", **self._in_part(), "text": part["text"]},
            {"type": "response.content_part.done", **self._in_part(), "part": part},
            self._done(item),
        ]

    @override
    def item(self, status: ItemStatus) -> OutputReasoning:
        content = [_reasoning_text("".join(self._text))]
        return {"id": self._id, "type": "reasoning", "status": status, "summary": [], "content": content}


class OpenEncodedReasoning(OpenReasoning):
    """Reasoning whose item also has it as `encrypted_content`."""

    @override
    def item(self, status: ItemStatus) -> OutputReasoning:
        item = super().item(status)
        if status == "in_progress":
            return item
        return {**item, "encrypted_content": encode_reasoning("".join(self._text))}


class OpenAnyCall(OpenItem):
    """A call that is being generated. It has no parts."""

    def __init__(self, index: int, numbers: Iterator[int], name: str, namespace: str | None) -> None:
        """Begin a call.

        Args:
            index: its index in the output.
            numbers: sequence numbers of the stream's events.
            name: the tool's name.
            namespace: its namespace, if it is in one.
        """
        super().__init__(index, numbers)
        self._call_id = new_id("call")
        self._name = name
        self._namespace = namespace

    @override
    def begin(self) -> list[ResponseEvent]:
        return [self._added(self.item("in_progress"))]


class OpenCall(OpenAnyCall):
    """A function call that is being generated. Its text is that of the arguments."""

    prefix = "fc"

    @override
    def append(self, text: str, logprobs: Sequence[ChosenLogprob]) -> list[ResponseEvent]:
        self._text.append(text)
        return [{"type": "response.function_call_arguments.delta", **self._in_item(), "delta": text}]

    @override
    def end(self, status: ItemStatus) -> list[ResponseEvent]:
        item = self.item(status)
        return [
            {
                "type": "response.function_call_arguments.done",
                **self._in_item(),
                "name": item["name"],
                "arguments": item["arguments"],
            },
            self._done(item),
        ]

    @override
    def item(self, status: ItemStatus) -> OutputCall:
        call: OutputCall = {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._text),
        }
        return in_namespace(call, self._namespace)


class OpenCustomCall(OpenAnyCall):
    """A call of a custom tool that is being generated. Its text is the input."""

    prefix = "ctc"

    @override
    def append(self, text: str, logprobs: Sequence[ChosenLogprob]) -> list[ResponseEvent]:
        self._text.append(text)
        return [{"type": "response.custom_tool_call_input.delta", **self._in_item(), "delta": text}]

    @override
    def end(self, status: ItemStatus) -> list[ResponseEvent]:
        item = self.item(status)
        done: CustomInputDone = {
            "type": "response.custom_tool_call_input.done",
            **self._in_item(),
            "input": item["input"],
        }
        return [done, self._done(item)]

    @override
    def item(self, status: ItemStatus) -> OutputCustomCall:
        call: OutputCustomCall = {
            "id": self._id,
            "type": "custom_tool_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "input": "".join(self._text),
        }
        return in_namespace(call, self._namespace)


def _reasoning_text(text: str) -> OutputReasoningText:
    return {"type": "reasoning_text", "text": text}


def _as_list(logprobs: Sequence[bytes]) -> list[ChosenLogprob]:
    """Return encoded log-probabilities as a value for `orjson.dumps` only, which copies their bytes."""
    return cast("list[ChosenLogprob]", orjson.Fragment(b"[%b]" % b",".join(logprobs)))
