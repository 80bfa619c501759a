"""Text of a model and its deltas."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.chat.deltas import ContentDelta, Delta

BAR = "\uff5c"


def wide(text: str) -> str:
    """DeepSeek's markers."""
    return text.replace("|", BAR)


@dataclass(frozen=True, slots=True)
class Case:
    """A text of a model of `family`, and its deltas."""

    family: str
    name: str
    text: str
    deltas: Sequence[Delta]
    thinking: bool = False

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"


def words(family: str, name: str, text: str) -> Case:
    """Return a text that has neither calls nor thoughts."""
    return Case(family, name, text, [ContentDelta(text)])
