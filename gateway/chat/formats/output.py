"""Output of a reader as deltas, with the whitespace around reasoning and calls removed."""

import orjson
from typing_extensions import override

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta


class Output:
    """Collects content, reasoning and calls in the order of the text.

    Whitespace between content, reasoning and calls belongs to the markup and is dropped. So trailing whitespace is held
    back until the next part is known. At the end of the text, trailing whitespace of content is emitted.
    """

    calls: int
    """Number of calls that began."""
    cut_calls: set[int]
    """As in `FormatParser`."""

    def __init__(self) -> None:
        self.calls = 0
        self.cut_calls = set()
        self._deltas: list[Delta] = []
        self._kind: type[ContentDelta | ReasoningDelta | CallArguments] = ContentDelta  # type of the parts
        self._parts: list[str] = []
        self._arguments: list[str] = []  # of the last call
        self._text_kind: type[ContentDelta | ReasoningDelta] | None = None
        self._whitespace = ""
        self._fresh = True  # the current content or reasoning has only whitespace so far
        self._leads = False  # it is content at the start of the text, which keeps its leading whitespace

    @property
    def answered(self) -> bool:
        """True once content or a call was emitted."""
        return self.calls > 0 or self.speaks

    @property
    def speaks(self) -> bool:
        """True if content was emitted last."""
        return self._text_kind is ContentDelta and not self._fresh

    def content(self, text: str) -> None:
        """Append text to the content."""
        self._add_text(ContentDelta, text)

    def reasoning(self, text: str) -> None:
        """Append text to the reasoning."""
        self._add_text(ReasoningDelta, text)

    def reasoning_begins(self, _tag: str, *, after: str = "") -> None:
        """Note the opening tag of reasoning, which may have no text. `after` parts it from earlier reasoning."""
        self._begin_text(ReasoningDelta)
        self.reasoning(after)

    def reasoning_repeats(self, _tag: str) -> None:
        """Note an opening tag of reasoning that has begun before; empty if the text has none."""

    def reasoning_ends(self, _tag: str) -> None:
        """Note the closing tag of reasoning; empty if the text has none."""

    def call(self, name: str) -> None:
        """Begin another call."""
        self._close()
        self._deltas.append(CallBegan(self.calls, name))
        self.calls += 1
        self._text_kind, self._whitespace = None, ""
        self._arguments.clear()

    def arguments(self, text: str) -> None:
        """Append JSON text to the arguments of the last call."""
        self._add(CallArguments, text)
        self._arguments.append(text)

    def cut(self) -> None:
        """Note that the last call ended too early: in its arguments, or in the markup behind them."""
        try:
            orjson.loads("".join(self._arguments))
        except orjson.JSONDecodeError:
            self.cut_calls.add(self.calls - 1)

    def take(self) -> list[Delta]:
        """Return the deltas since the last `take`."""
        self._close()
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> None:
        """Emit the content's trailing whitespace at the end of the text."""
        if self._text_kind is ContentDelta and self._whitespace:
            self._add(ContentDelta, self._whitespace)
            self._whitespace = ""

    def _add_text(self, kind: type[ContentDelta | ReasoningDelta], text: str) -> None:
        if not text:
            return
        self._begin_text(kind)
        text = self._whitespace + text
        if self._fresh and not self._leads:
            text = text.lstrip()
        trimmed = text.rstrip()
        self._whitespace = text[len(trimmed) :]
        if trimmed:
            self._fresh = False
            self._add(kind, trimmed)

    def _begin_text(self, kind: type[ContentDelta | ReasoningDelta]) -> None:
        """Begin content or reasoning, unless it is the current kind of text."""
        if kind is not self._text_kind:
            self._leads = kind is ContentDelta and self._text_kind is None and not self.calls
            self._text_kind, self._whitespace, self._fresh = kind, "", True

    def _add(self, kind: type[ContentDelta | ReasoningDelta | CallArguments], text: str) -> None:
        if kind is not self._kind:
            self._close()
            self._kind = kind
        self._parts.append(text)

    def _close(self) -> None:
        """Join the last parts into a delta."""
        text = "".join(self._parts)
        self._parts.clear()
        if text and self._kind is CallArguments:
            self._deltas.append(CallArguments(self.calls - 1, text))
        elif text:
            self._deltas.append(ReasoningDelta(text) if self._kind is ReasoningDelta else ContentDelta(text))


class InlineOutput(Output):
    """Output whose content has the reasoning as the model wrote it: with its tags, and with all whitespace around."""

    @override
    def reasoning(self, text: str) -> None:
        self._add(ContentDelta, self._whitespace + text)
        self._whitespace = ""

    @override
    def reasoning_begins(self, tag: str, *, after: str = "") -> None:
        self.reasoning(tag)

    @override
    def reasoning_repeats(self, tag: str) -> None:
        self.reasoning(tag)

    @override
    def reasoning_ends(self, tag: str) -> None:
        self.reasoning(tag)
