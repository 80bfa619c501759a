"""Work of the intake in pieces, between which clients take turns."""

from collections.abc import Generator
from enum import Enum
from typing import TypeAlias, TypeVar

ResultT = TypeVar("ResultT")

SHORT_TEXT = 2**15
"""Characters. llama.cpp tokenises so many in some 10 ms."""


class Effort(Enum):
    """Effort of a piece of work. Each kind has a thread of its own, so that a piece delays only its like."""

    LIGHT = "light"
    """Some milliseconds: checks and short texts."""
    TEXT = "text"
    """A long text of a request: llama.cpp tokenises it at once, without the interpreter's lock."""
    QUERY = "query"
    """A long text of a query. It may be longer than a context, so that no request should wait for it."""
    ANSWER = "answer"
    """A part of an answer to a query, which may wait until earlier parts are written."""
    COMPILE = "compile"
    """A grammar or a sampler to compile, for up to a second. llguidance releases the interpreter's lock."""
    OPEN = "open"
    """An embedder to open, for the first request or a longer text: for some seconds where it has many cells."""


Slices: TypeAlias = Generator[Effort, None, ResultT]
"""Work in pieces. It yields the effort of its next piece before each one, and returns the result."""


def effort_of_text(characters: int) -> Effort:
    """Return the effort of tokenising so many characters."""
    return Effort.LIGHT if characters <= SHORT_TEXT else Effort.TEXT
