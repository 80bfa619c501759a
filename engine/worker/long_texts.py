"""Bounds of the work on long texts, which llama.cpp tokenises at once: it cannot be interrupted.

Where a vocabulary lacks the characters of a text, each byte becomes a token, and the time grows with their square: 3 s
for half a million, minutes for some millions. So the tokens are counted first, in short pieces.
"""

from engine.core.model import Model
from engine.worker.slices import SHORT_TEXT, Effort, Slices

_CHARACTERS_PER_TOKEN = 4
"""Average of natural text."""


def beginning(text: str, model: Model, limit: int) -> Slices[str]:
    """Return the beginning of a text that has more tokens than a limit, or a text that may have no more.

    What is returned has hardly more than twice as many. The pieces must have twice `limit` tokens, so that the tokens
    next to the cuts make no difference.
    """
    size = min(SHORT_TEXT, 2 * _CHARACTERS_PER_TOKEN * limit)
    if len(text) <= size or len(text.encode()) <= 2 * limit:  # a token has at least a byte
        return text
    tokens = 0
    for at in range(0, len(text), size):
        yield Effort.LIGHT
        tokens += len(model.tokenize(text[at : at + size], begin=False))
        if tokens > 2 * limit:
            return text[: at + size]
    return text


def begins_too_long(text: str, model: Model, limit: int) -> Slices[bool]:
    """Return whether the beginning of a text alone has more tokens than a limit."""
    return len((yield from beginning(text, model, limit))) < len(text)
