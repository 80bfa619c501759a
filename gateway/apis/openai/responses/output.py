"""Output of a response during its generation."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from gateway.apis.answers.shapes import ChosenLogprob
from gateway.apis.openai.responses.encoded import EncodedItem, encode_item
from gateway.apis.openai.responses.events import ResponseEvent
from gateway.apis.openai.responses.items import ItemStatus
from gateway.apis.openai.responses.open_items import (
    OpenAnyCall,
    OpenCall,
    OpenCustomCall,
    OpenEncodedReasoning,
    OpenItem,
    OpenMessage,
    OpenReasoning,
)
from gateway.apis.openai.responses.tools.names import prefix_of
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta


class ResponseOutput:
    """Converts deltas to items and their events. Only the last item can be open."""

    def __init__(self, numbers: Iterator[int], *, encodes_reasoning: bool, namespaces: Mapping[str, str]) -> None:
        """Create an empty output.

        Args:
            numbers: sequence numbers of the stream's events.
            encodes_reasoning: True to add the reasoning as `encrypted_content`.
            namespaces: namespaces of the tools that are in one, by the tools' names for the model.
        """
        self._numbers = numbers
        self._reasoning = OpenEncodedReasoning if encodes_reasoning else OpenReasoning
        self._namespaces = namespaces
        self._items: list[EncodedItem] = []
        self._open: OpenItem | None = None
        self._call = -1  # index of the last call
        self._cut_calls: Collection[int] = ()

    def add(
        self, delta: Delta, logprobs: Sequence[ChosenLogprob] = (), *, cut_calls: Collection[int] = ()
    ) -> list[ResponseEvent]:
        """Add a delta and return its events.

        Args:
            delta: the delta.
            logprobs: those of the tokens of a content delta.
            cut_calls: calls that are incomplete, as in `FormatParser`.
        """
        self._cut_calls = cut_calls
        match delta:
            case ContentDelta():
                return self._continue(OpenMessage, delta.text, logprobs)
            case ReasoningDelta():
                return self._continue(self._reasoning, delta.text)
            case CallBegan(index, name, custom):
                begun = self._begin_call(OpenCustomCall if custom else OpenCall, name)
                self._call = index
                return begun
            case CallArguments():
                return self._open.append(delta.text, ()) if self._open else []

    def close(self, status: ItemStatus, *, cut_calls: Collection[int] = ()) -> list[ResponseEvent]:
        """End the last item with its status and return its events. `cut_calls` are as in `add`.

        An output without items gets an empty message, and so does a completed one of reasoning only: clients look for
        the message of an answer that is complete.
        """
        self._cut_calls = cut_calls
        reasoned = status == "completed" and isinstance(self._open, OpenReasoning)
        silent = not self._items and (self._open is None or reasoned)
        return (self._begin(OpenMessage) if silent else []) + self._end(status)

    def items(self) -> tuple[EncodedItem, ...]:
        """Return all items, including the open one with its content so far."""
        begun = (encode_item(self._open.item("incomplete")),) if self._open else ()
        return (*self._items, *begun)

    def _continue(
        self, kind: type[OpenMessage | OpenReasoning], text: str, logprobs: Sequence[ChosenLogprob] = ()
    ) -> list[ResponseEvent]:
        begun = [] if isinstance(self._open, kind) else self._begin(kind)
        return begun + (self._open.append(text, logprobs) if self._open else [])

    def _begin_call(self, kind: type[OpenAnyCall], model_name: str) -> list[ResponseEvent]:
        namespace = self._namespaces.get(model_name)
        name = model_name if namespace is None else model_name.removeprefix(prefix_of(namespace))
        return self._begin(partial(kind, name=name, namespace=namespace))

    def _begin(self, make: Callable[[int, Iterator[int]], OpenItem]) -> list[ResponseEvent]:
        ended = self._end("completed")
        self._open = make(len(self._items), self._numbers)
        return ended + self._open.begin()

    def _end(self, status: ItemStatus) -> list[ResponseEvent]:
        if self._open is None:
            return []
        ended, self._open = self._open, None
        if isinstance(ended, OpenAnyCall) and self._call in self._cut_calls:
            status = "incomplete"
        self._items.append(encode_item(ended.item(status)))
        return ended.end(status)
