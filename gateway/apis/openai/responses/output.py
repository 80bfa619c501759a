"""The output of a response as it comes to be."""

from collections.abc import Callable

from gateway.apis.openai.responses.items import Item
from gateway.apis.openai.responses.output_items import Call, Event, Logprobs, Message, Thought, Writing
from gateway.chat.deltas import CallArguments, CallBegan, Content, Delta, Reasoning


class Output:
    """Turns deltas into items, of which the last may be open, and into the events that tell of them."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._open: Writing | None = None

    def add(self, delta: Delta, logprobs: Logprobs = ()) -> list[Event]:
        """Take a delta; `logprobs` are those of a content's tokens."""
        match delta:
            case Content():
                return self._continue(Message, delta.text, logprobs)
            case Reasoning():
                return self._continue(Thought, delta.text)
            case CallBegan(name=name):
                return self._begin(lambda index: Call(index, name))
            case CallArguments():
                return self._open.more(delta.text, ()) if self._open else []

    def close(self, status: str) -> list[Event]:
        """End the last item: it is `completed` or `incomplete`. Nothing at all is an empty message."""
        begun = [] if self._items or self._open else self._begin(Message)
        return begun + self._end(status)

    def items(self) -> list[Item]:
        """Every item, the open one as far as it is written."""
        return [*self._items, *([self._open.item("incomplete")] if self._open else ())]

    def _continue(self, kind: type[Message | Thought], text: str, logprobs: Logprobs = ()) -> list[Event]:
        begun = [] if isinstance(self._open, kind) else self._begin(kind)
        return begun + (self._open.more(text, logprobs) if self._open else [])

    def _begin(self, make: Callable[[int], Writing]) -> list[Event]:
        ended = self._end("completed")
        self._open = make(len(self._items))
        return ended + self._open.begin()

    def _end(self, status: str) -> list[Event]:
        if self._open is None:
            return []
        ended, self._open = self._open, None
        self._items.append(ended.item(status))
        return ended.end(status)
