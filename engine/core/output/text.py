"""Decodes token bytes to text that can be sent: whole characters, and no part of a stop string."""

import codecs
from bisect import bisect_right
from collections.abc import Iterable


class TextAssembler:
    """The text of one choice. Holds back text that may become a stop string.

    Bytes that can never become a character turn into U+FFFD. An unfinished character at the end is left out.
    """

    shown: int
    """Number of characters returned so far."""
    begin: int
    """Position in the text, in characters, of the first byte of the last piece."""
    stopped: str | None
    """The stop string that ended the text."""

    def __init__(self, stop: Iterable[str] = ()) -> None:
        self._unfinished = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(stop)
        self._sorted = sorted(self._stop)
        self._held = ""
        self.shown = 0
        self.begin = 0
        self.stopped = None

    def echo(self, prompt: bytes) -> str:
        """Return the text of a prompt, in which stop strings do not count. `push` may finish its last character."""
        text = self._decoder.decode(prompt)
        self._unfinished = bool(self._decoder.getstate()[0])
        return self._show(text)

    def push(self, piece: bytes, *, may_stop: bool = True) -> str:
        """Add a token's bytes and return the text that can be sent now.

        Args:
            piece: the bytes.
            may_stop: whether a stop string that they complete ends the text and sets `stopped`; otherwise it is plain
                text.
        """
        text = self._decode(piece)
        if not self._stop:
            self.shown += len(text)
            return text
        text = self._held + text
        if may_stop and (found := self._find_stop(text)):
            at, self.stopped = found
            self._held = ""
            return self._show(text[:at])
        safe = len(text) - self._possible_stop(text)
        self._held = text[safe:]
        return self._show(text[:safe])

    def cut(self, characters: int) -> None:
        """Take back the last characters that were returned, and what is held back."""
        self.shown -= characters
        self._held = ""

    def flush(self) -> str:
        """Return the text held back, at the end of a generation."""
        held, self._held = self._held, ""
        return self._show(held)

    def _show(self, text: str) -> str:
        self.shown += len(text)
        return text

    def _decode(self, piece: bytes) -> str:
        """Return the characters that a piece completes, and set `begin`.

        The first byte determines the position: the last character that it completes, or else the one it leaves
        unfinished.
        """
        self.begin = self.shown + len(self._held)
        if not self._unfinished:
            try:
                return piece.decode()
            except UnicodeDecodeError:
                pass  # it begins with a part of a character, or ends with one
        first = self._decoder.decode(piece[:1])
        self.begin += len(first) - (not self._decoder.getstate()[0])
        text = first + self._decoder.decode(piece[1:])
        self._unfinished = bool(self._decoder.getstate()[0])
        return text

    def _find_stop(self, text: str) -> tuple[int, str] | None:
        """Return the position and the text of the first stop string that ends behind the text held so far."""
        found = []
        for stop in self._stop:
            at = text.find(stop, max(0, len(self._held) + 1 - len(stop)))
            if at >= 0:
                found.append((at, stop))
        return min(found, key=lambda one: one[0], default=None)

    def _possible_stop(self, text: str) -> int:
        """Return the length of the longest end of `text` that begins a stop string.

        Each text that begins none is one character less to hold back, so that the work grows only with the text.
        """
        return next((len(text) - at for at in range(len(text)) if self._begins_stop(text[at:])), 0)

    def _begins_stop(self, text: str) -> bool:
        """Return whether a stop string begins with a text and goes on. When sorted, those that do follow the text."""
        at = bisect_right(self._sorted, text)
        return at < len(self._sorted) and self._sorted[at].startswith(text)
