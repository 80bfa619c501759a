"""Token bytes to text that is safe to show: whole characters, and never part of a stop string."""

import codecs
from collections.abc import Iterable


class TextAssembler:
    """Assembles one choice's text, holding back what may yet turn out to be a stop string.

    Bytes that can never become a character turn into U+FFFD; an unfinished character at the very end is left out.
    """

    def __init__(self, stop: Iterable[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(stop)
        self._held = ""
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Takes a token's bytes; gives the text that is safe now. After a stop string, `stopped` is true."""
        text = self._held + self._decoder.decode(piece)
        if not self._stop:
            return text
        found = [at for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        safe = len(text) - self._possible_stop(text)
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """The text still held back, at a generation's end: no stop string came of it."""
        held, self._held = self._held, ""
        return held

    def _possible_stop(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:length]):
                    longest = length
                    break
        return longest
