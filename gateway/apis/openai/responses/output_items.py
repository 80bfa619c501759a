"""An item of a response's output while it is being written, and the events that tell of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from gateway.apis.openai.responses.items import Item, new_id, output_text

Event: TypeAlias = dict[str, Any]
"""An event of a stream, by OpenAI's names, without its number."""

Logprobs: TypeAlias = Sequence[Mapping[str, Any]]
"""Of the tokens of a text, in OpenAI's shape."""


class Writing(Protocol):
    """An item that grows."""

    def begin(self) -> list[Event]:
        """Tell that it begins."""
        ...

    def more(self, text: str, logprobs: Logprobs) -> list[Event]:
        """Take more of its text; `logprobs` count in messages only."""
        ...

    def end(self, status: str) -> list[Event]:
        """Tell all of it again, whole."""
        ...

    def item(self, status: str) -> Item:
        """The item as far as it is written."""
        ...


class Message:
    """What the model says to the reader."""

    def __init__(self, index: int) -> None:
        """Args: `index`, the item's place in the output."""
        self._id = new_id("msg")
        self._index = index
        self._place = {"item_id": self._id, "output_index": index, "content_index": 0}
        self._text: list[str] = []
        self._logprobs: list[Mapping[str, Any]] = []

    def begin(self) -> list[Event]:
        """As in `Writing`."""
        return [
            _added(self._index, {**self.item("in_progress"), "content": []}),
            {"type": "response.content_part.added", **self._place, "part": output_text("")},
        ]

    def more(self, text: str, logprobs: Logprobs) -> list[Event]:
        """As in `Writing`."""
        self._text.append(text)
        self._logprobs += logprobs
        return [{"type": "response.output_text.delta", **self._place, "delta": text, "logprobs": list(logprobs)}]

    def end(self, status: str) -> list[Event]:
        """As in `Writing`."""
        item = self.item(status)
        (part,) = item["content"]
        told = {"text": part["text"], "logprobs": part["logprobs"]}
        return [
            {"type": "response.output_text.done", **self._place, **told},
            {"type": "response.content_part.done", **self._place, "part": part},
            _done(self._index, item),
        ]

    def item(self, status: str) -> Item:
        """As in `Writing`."""
        content = [output_text("".join(self._text), self._logprobs)]
        return {"id": self._id, "type": "message", "role": "assistant", "status": status, "content": content}


class Thought:
    """What the model thinks, in its own words."""

    def __init__(self, index: int) -> None:
        """Args: `index`, the item's place in the output."""
        self._id = new_id("rs")
        self._index = index
        self._place = {"item_id": self._id, "output_index": index, "content_index": 0}
        self._text: list[str] = []

    def begin(self) -> list[Event]:
        """As in `Writing`."""
        part = {"type": "reasoning_text", "text": ""}
        return [
            _added(self._index, {**self.item("in_progress"), "content": []}),
            {"type": "response.content_part.added", **self._place, "part": part},
        ]

    def more(self, text: str, _logprobs: Logprobs) -> list[Event]:
        """As in `Writing`."""
        self._text.append(text)
        return [{"type": "response.reasoning_text.delta", **self._place, "delta": text}]

    def end(self, status: str) -> list[Event]:
        """As in `Writing`."""
        item = self.item(status)
        (part,) = item["content"]
        return [
            {"type": "response.reasoning_text.done", **self._place, "text": part["text"]},
            {"type": "response.content_part.done", **self._place, "part": part},
            _done(self._index, item),
        ]

    def item(self, status: str) -> Item:
        """As in `Writing`."""
        content = [{"type": "reasoning_text", "text": "".join(self._text)}]
        return {"id": self._id, "type": "reasoning", "status": status, "summary": [], "content": content}


class Call:
    """The model calls a function; its text is that of the arguments."""

    def __init__(self, index: int, name: str) -> None:
        """Args: `index`, the item's place in the output; `name`, the function's."""
        self._id = new_id("fc")
        self._index = index
        self._place = {"item_id": self._id, "output_index": index}
        self._called = {"call_id": new_id("call"), "name": name}
        self._arguments: list[str] = []

    def begin(self) -> list[Event]:
        """As in `Writing`."""
        return [_added(self._index, self.item("in_progress"))]

    def more(self, text: str, _logprobs: Logprobs) -> list[Event]:
        """As in `Writing`."""
        self._arguments.append(text)
        return [{"type": "response.function_call_arguments.delta", **self._place, "delta": text}]

    def end(self, status: str) -> list[Event]:
        """As in `Writing`."""
        item = self.item(status)
        told = {"name": item["name"], "arguments": item["arguments"]}
        return [
            {"type": "response.function_call_arguments.done", **self._place, **told},
            _done(self._index, item),
        ]

    def item(self, status: str) -> Item:
        """As in `Writing`."""
        arguments = "".join(self._arguments)
        return {"id": self._id, "type": "function_call", "status": status, **self._called, "arguments": arguments}


def _added(index: int, item: Item) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: Item) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}
