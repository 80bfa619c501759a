"""Streamed text of one choice, for readers that may need more text than is available.

A reader is a generator. It calls a `Source` for the next part, with `yield from` if it may have to wait. The result
depends only on the text, never on how the text was split.
"""

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""Yields while it waits for more text; returns a T."""

Emit: TypeAlias = Callable[[str], object]
"""Receives text as soon as it is certain; the text may be empty."""

_WHITESPACE = re.compile(r"[ \t\r\n]*")


class Malformed(Exception):
    """The text does not follow the reader's format."""


class Truncated(Malformed):
    """The text ended too early, but followed the format up to there."""


class Source:
    """Text, the current position in it, and optionally an earlier position to return to."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._held: int | None = None
        self._ended = False

    def push(self, text: str) -> None:
        """Append text."""
        start = self._at if self._held is None else self._held
        self._text = self._text[start:] + text
        self._at -= start
        if self._held is not None:
            self._held = 0

    def end(self) -> None:
        """Mark the end of the text."""
        self._ended = True

    def hold(self, back: int = 0) -> None:
        """Save the position `back` characters before the current one for `rewind`."""
        self._held = self._at - back

    def commit(self) -> None:
        """Drop the saved position: the reader will not rewind."""
        self._held = None

    def rewind(self) -> None:
        """Return to the saved position, if there is one, and drop it."""
        if self._held is not None:
            self._at, self._held = self._held, None

    def take(self, length: int) -> str:
        """Read `length` characters, which must be available."""
        self._at += length
        return self._text[self._at - length : self._at]

    def put_back(self, length: int) -> None:
        """Unread the last `length` characters. The reader must not have waited since it read them."""
        self._at -= length

    def rest(self) -> str:
        """Read all available text."""
        return self.take(len(self._text) - self._at)

    def peek(self) -> Reading[str]:
        """Return the next character without reading it; empty at the end."""
        while self._at == len(self._text) and not self._ended:
            yield
        return self._text[self._at : self._at + 1]

    def skip_whitespace(self, emit: Emit | None = None) -> Reading[None]:
        """Skip whitespace, newlines included, and emit it."""
        while True:
            text = self.take(_end(_WHITESPACE, self._text, self._at) - self._at)
            if emit and text:
                emit(text)
            if self._at < len(self._text) or self._ended:
                return
            yield

    def word(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Read the characters that `pattern`, a repeated character class, matches; the result may be empty."""
        length = 0
        while True:
            length = _end(pattern, self._text, self._at + length) - self._at
            if self._at + length < len(self._text) or self._ended:
                return self.take(length)
            yield

    def follows(self, *texts: str) -> Reading[str | None]:
        """Read the longest of `texts` that comes next, and return it; return None if other text comes next."""
        while not self._ended and self._undecided(texts):
            yield
        found = [text for text in texts if self._text.startswith(text, self._at)]
        return self.take(max(map(len, found))) if found else None

    def expect(self, *texts: str) -> Reading[str]:
        """Read the longest of `texts` that comes next, and return it.

        Raises:
            Malformed: if other text comes next.
            Truncated: if the text ends inside one of `texts`.
        """
        found = yield from self.follows(*texts)
        if found is None:
            raise Truncated if self.ends_in(*texts) else Malformed
        return found

    def closing(self, text: str) -> Reading[None]:
        """Skip `text`, or a prefix of it at the end, if it comes next. Models forget to close what they open."""
        if (yield from self.follows(text)) is None and self.ends_in(text):
            self.rest()

    def until(self, markers: tuple[str, ...], emit: Emit) -> Reading[str | None]:
        """Emit text up to the first of `markers`, as early as is certain; read that marker and return it.

        Returns None if the text ends before a marker. No marker may be a prefix of another.
        """
        search = _search(markers)
        while True:
            if found := search.search(self._text, self._at):
                emit(self.take(found.start() - self._at))
                return self.take(len(found.group()))
            open_end = 0 if self._ended else self._possible_marker(markers)
            emit(self.take(len(self._text) - open_end - self._at))
            if self._ended:
                return None
            yield

    def finished(self) -> bool:
        """Return whether the text has ended and all of it was read."""
        return self._ended and self._at == len(self._text)

    def ends_in(self, *texts: str) -> bool:
        """Return whether the text has ended before or inside one of `texts`."""
        return self._ended and self._undecided(texts)

    def _undecided(self, texts: tuple[str, ...]) -> bool:
        left = len(self._text) - self._at
        return any(len(text) > left and text.startswith(self._text[self._at :]) for text in texts)

    def _possible_marker(self, markers: tuple[str, ...]) -> int:
        """Return the length of the longest suffix of the text that is a prefix of a marker."""
        left = len(self._text) - self._at
        for length in range(min(left, max(map(len, markers), default=1) - 1), 0, -1):
            if any(marker.startswith(self._text[-length:]) for marker in markers):
                return length
        return 0


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


@lru_cache(maxsize=256)
def _search(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, markers)) or r"(?!)")
