"""The text of one choice while it comes, for readers that may ask for more than there is.

A reader is a generator. It asks a `Source` for what it wants next, with `yield from` where that may have to wait. What
it is given depends on the text alone and never on how the text was cut.
"""

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""Yields where it must wait for more text; returns a T."""

Emit: TypeAlias = Callable[[str], object]
"""Takes text as it becomes certain; perhaps none."""

_WHITESPACE = re.compile(r"[ \t\r\n]*")


class Malformed(Exception):
    """The text is not what the reader's format says."""


class Truncated(Malformed):
    """The text ended where it could have gone on as the format says."""


class Source:
    """Text, a place in it, and perhaps an earlier place to go back to."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._held: int | None = None
        self._ended = False

    def push(self, text: str) -> None:
        """More text has come."""
        start = self._at if self._held is None else self._held
        self._text = self._text[start:] + text
        self._at -= start
        if self._held is not None:
            self._held = 0

    def end(self) -> None:
        """No more text will come."""
        self._ended = True

    def hold(self, back: int = 0) -> None:
        """Remember the place, `back` characters before this one, for `rewind`."""
        self._held = self._at - back

    def commit(self) -> None:
        """Nobody will want to go back."""
        self._held = None

    def rewind(self) -> None:
        """Go back to the place that is held, if one is, and forget it."""
        if self._held is not None:
            self._at, self._held = self._held, None

    def take(self, length: int) -> str:
        """Text that is certainly there."""
        self._at += length
        return self._text[self._at - length : self._at]

    def put_back(self, length: int) -> None:
        """Give back the end of what was taken last, which nobody has waited since."""
        self._at -= length

    def rest(self) -> str:
        """All that is there."""
        return self.take(len(self._text) - self._at)

    def peek(self) -> Reading[str]:
        """The next character; empty at the end."""
        while self._at == len(self._text) and not self._ended:
            yield
        return self._text[self._at : self._at + 1]

    def skip_whitespace(self, emit: Emit | None = None) -> Reading[None]:
        """Pass blanks and line ends."""
        yield from self.run(_WHITESPACE, emit)

    def run(self, pattern: re.Pattern[str], emit: Emit | None = None) -> Reading[None]:
        """Pass the characters that `pattern`, a repeated class of them, matches."""
        while True:
            end = _end(pattern, self._text, self._at)
            text = self.take(end - self._at)
            if emit and text:
                emit(text)
            if self._at < len(self._text) or self._ended:
                return
            yield

    def word(self, pattern: re.Pattern[str]) -> Reading[str]:
        """The characters that `pattern`, a repeated class of them, matches; perhaps none."""
        length = 0
        while True:
            length = _end(pattern, self._text, self._at + length) - self._at
            if self._at + length < len(self._text) or self._ended:
                return self.take(length)
            yield

    def follows(self, *texts: str) -> Reading[str | None]:
        """Pass the longest of `texts` that comes next, and say which; None, and stay, where none does."""
        while not self._ended and self._undecided(texts):
            yield
        found = [text for text in texts if self._text.startswith(text, self._at)]
        return self.take(max(map(len, found))) if found else None

    def expect(self, *texts: str) -> Reading[str]:
        """As `follows`. Raises `Malformed` where none of `texts` comes."""
        found = yield from self.follows(*texts)
        if found is None:
            raise Truncated if self._ended and self._undecided(texts) else Malformed
        return found

    def closing(self, text: str) -> Reading[None]:
        """Pass `text` if it comes next, or as much of it as the end leaves. Models forget to close what they open."""
        if (yield from self.follows(text)) is None and self._ended and self._undecided((text,)):
            self.rest()

    def until(self, markers: tuple[str, ...], emit: Emit) -> Reading[str | None]:
        """Emit text up to the first of `markers`, as early as is certain; pass that one and say which.

        None where the text ends before one comes. No marker may begin another.
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
        """Whether the text has ended and all of it is passed."""
        return self._ended and self._at == len(self._text)

    def _undecided(self, texts: tuple[str, ...]) -> bool:
        left = len(self._text) - self._at
        return any(len(text) > left and text.startswith(self._text[self._at :]) for text in texts)

    def _possible_marker(self, markers: tuple[str, ...]) -> int:
        """Length of the longest end of the text that begins a marker."""
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
