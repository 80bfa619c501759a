"""What a model's text turns out to be: content, reasoning, calls. A closed set of frozen values, and who finds them."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """Text for the reader; not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text of the model's thinking; not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    """The model calls a tool.

    Attributes:
        index: the call's place among the choice's calls, from 0.
        name: the tool's name, whole.
    """

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments of the call that began last.

    Attributes:
        index: the call's.
        text: a fragment of the arguments' JSON text; not empty.
    """

    index: int
    text: str


Delta: TypeAlias = ContentDelta | ReasoningDelta | CallBegan | CallArguments


class FormatParser(Protocol):
    """Reads the text of one choice. No text makes it raise, and its deltas join to the same however the text is cut."""

    def feed(self, text: str) -> list[Delta]:
        """Take the text that follows what was fed before; give the deltas that are certain now."""
        ...

    def finish(self) -> list[Delta]:
        """Give what was held back, once, when the text has ended. An unfinished call that cannot be read is content."""
        ...
