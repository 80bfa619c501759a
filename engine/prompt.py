"""Prompts: text with or without plain parts, token ids, or the texts around a gap."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct


class PromptText(Struct, frozen=True, tag=True):
    """Text in which some parts are only text: names of control tokens there do not become these tokens."""

    text: str
    """The whole text."""
    plain: tuple[tuple[int, int], ...]
    """Start and end of each part that is only text, in order. Beside it is a control token, or an end of the text."""
    turns: tuple[int, ...] = ()
    """Positions up to which a later prompt may repeat this one: where messages begin and end. In ascending order."""

    def parts(self) -> Iterator[tuple[str, bool]]:
        """Return all parts in order, each with True if it is plain. Plain and other parts alternate."""
        cuts = pairwise([0, *(at for part in self.plain for at in part), len(self.text)])
        return ((self.text[start:end], index % 2 == 1) for index, (start, end) in enumerate(cuts))

    def split(self, at: int) -> tuple["PromptText", "PromptText"]:
        """Return the text before a position, and the text after it, both without turns."""
        before = tuple((start, min(end, at)) for start, end in self.plain if start < at)
        after = tuple((max(start - at, 0), end - at) for start, end in self.plain if end > at)
        return PromptText(self.text[:at], before), PromptText(self.text[at:], after)


class Infill(Struct, frozen=True, tag=True):
    """Fill-in-the-middle prompt: requests the text between two others. Only some models support it."""

    prefix: str
    """Text before the gap."""
    suffix: str
    """Text after the gap."""


TextPrompt: TypeAlias = str | PromptText
"""Text, which the engine tokenises. Names of control tokens in it become these tokens, except where it is plain."""

Prompt: TypeAlias = TextPrompt | tuple[int, ...] | Infill
"""Text, token ids, or a fill-in-the-middle prompt."""


def text_of(prompt: TextPrompt) -> str:
    """Return the whole text of a prompt."""
    return prompt if isinstance(prompt, str) else prompt.text


def all_plain(text: str) -> PromptText:
    """Return a text that is plain as a whole."""
    return PromptText(text, ((0, len(text)),))
