"""Deltas that the generated text is parsed into, and the protocol of the parsers.

The types of deltas are a closed set of frozen values: content, reasoning, tool calls.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """A piece of the answer's text."""

    text: str
    """The text; not empty."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str
    """The text; not empty."""


@dataclass(frozen=True, slots=True)
class CallBegan:
    """Start of a tool call."""

    index: int
    """Position of the call among the calls of the choice, from 0."""
    name: str
    """Name of the tool; always complete."""
    custom: bool = False
    """True if the tool is a custom one."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments of the call that began last."""

    index: int
    """Index of the call."""
    text: str
    """A fragment of the arguments' JSON text, or of the input of a custom tool; not empty."""


Delta: TypeAlias = ContentDelta | ReasoningDelta | CallBegan | CallArguments


class FormatParser(Protocol):
    """Parser for the text of one choice. Never raises; the joined deltas do not depend on how the text was split."""

    @property
    def cut_calls(self) -> Collection[int]:
        """Indices of the calls whose arguments are not whole: they are malformed, or the text ended in them.

        A call is one as soon as a delta behind it is returned, or `finish` was called.
        """
        ...

    def feed(self, text: str) -> list[Delta]:
        """Append text, and return the deltas that are certain now."""
        ...

    def finish(self) -> list[Delta]:
        """Return the deltas that were held back. Must be called once, at the end of the text.

        An unfinished call that cannot be parsed becomes content.
        """
        ...
