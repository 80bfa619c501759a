"""The deltas that a reader finds, with the blanks around reasoning and calls trimmed."""

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta


class Output:
    """Takes what was read, in order.

    Blanks between content, reasoning and calls belong to the markup and are dropped. So blanks at the end of what was
    told wait until it is known what follows; at the end of all, those of content are told.

    Attributes:
        calls: how many calls began.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._deltas: list[Delta] = []
        self._kind: type[ContentDelta | ReasoningDelta | CallArguments] = ContentDelta  # of the parts told last
        self._parts: list[str] = []
        self._text_kind: type[ContentDelta | ReasoningDelta] | None = None
        self._whitespace = ""
        self._fresh = True  # nothing but blanks was told of the prose that goes on
        self._leads = False  # that prose is content with nothing before it, whose first blanks are its own

    @property
    def answered(self) -> bool:
        """Whether content or a call was told."""
        return self.calls > 0 or (self._text_kind is ContentDelta and not self._fresh)

    def content(self, text: str) -> None:
        """The answer's text goes on."""
        self._add_text(ContentDelta, text)

    def reasoning(self, text: str) -> None:
        """The thinking goes on."""
        self._add_text(ReasoningDelta, text)

    def call(self, name: str) -> None:
        """Another call begins."""
        self._close()
        self._deltas.append(CallBegan(self.calls, name))
        self.calls += 1
        self._text_kind, self._whitespace = None, ""

    def arguments(self, text: str) -> None:
        """The arguments of the last call go on."""
        self._add(CallArguments, text)

    def take(self) -> list[Delta]:
        """What was told since this was asked last."""
        self._close()
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> None:
        """Nothing else comes."""
        if self._text_kind is ContentDelta and self._whitespace:
            self._add(ContentDelta, self._whitespace)
            self._whitespace = ""

    def _add_text(self, kind: type[ContentDelta | ReasoningDelta], text: str) -> None:
        if not text:
            return
        if kind is not self._text_kind:
            self._leads = kind is ContentDelta and self._text_kind is None and not self.calls
            self._text_kind, self._whitespace, self._fresh = kind, "", True
        text = self._whitespace + text
        if self._fresh and not self._leads:
            text = text.lstrip()
        trimmed = text.rstrip()
        self._whitespace = text[len(trimmed) :]
        if trimmed:
            self._fresh = False
            self._add(kind, trimmed)

    def _add(self, kind: type[ContentDelta | ReasoningDelta | CallArguments], text: str) -> None:
        if kind is not self._kind:
            self._close()
            self._kind = kind
        self._parts.append(text)

    def _close(self) -> None:
        """What was told last becomes a delta."""
        text = "".join(self._parts)
        self._parts.clear()
        if text and self._kind is CallArguments:
            self._deltas.append(CallArguments(self.calls - 1, text))
        elif text:
            self._deltas.append(ReasoningDelta(text) if self._kind is ReasoningDelta else ContentDelta(text))
