"""Cuts of texts with many names of special tokens: llama.cpp's time grows with the square of their number."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, pairwise

import llama_cpp

from engine.llama.vocabulary.attributes import PARSED

MOST_NAMES = 2**9
"""Most names of special tokens in a part of a text. A whole text with 100,000 took 15 s."""
_EDGES = r"<>\[\]\s\u2581"
_EDGE = re.compile(f"[{_EDGES}]")
_FORMS = tuple(map(re.compile, (rf"<[^{_EDGES}]+>", rf"\[[^{_EDGES}]+\]", r"[\s\u2581]+")))
"""Texts between brackets, and whole runs of white space, as SentencePiece writes it, too."""


class NameCuts:
    """The places in texts of a vocabulary where a cut does not change the tokens.

    In a vocabulary whose names have brackets only around the whole name and white space only alone, no other name can
    reach over the end of one in brackets, or of white space that is a name as a whole. Texts are cut there, except
    behind tokens that strip the spaces after them.
    """

    def __init__(self, names: Mapping[str, int]) -> None:
        """Take the names of the tokens that llama.cpp looks for, each with its attributes."""
        edged = list(filter(_EDGE.search, names))
        if not all(any(form.fullmatch(name) for form in _FORMS) for name in edged):
            edged = []
        behind = [name for name in edged if not names[name] & llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP]
        always = [name for name in behind if not names[name] & PARSED]
        self._separators = {True: frozenset(behind), False: frozenset(always)}
        self._finders = {special: _finder(separators) for special, separators in self._separators.items()}

    def parts(self, text: str, *, special: bool) -> Iterator[str]:
        """Yield the parts of a text, each with at most `MOST_NAMES` names at whose ends it could be cut.

        Args:
            text: the text.
            special: whether the names of control tokens in it become these tokens.
        """
        cuts = self._cuts(text, special=special) if len(text) > MOST_NAMES else ()
        return (text[start:end] for start, end in pairwise([0, *cuts, len(text)]))

    def _cuts(self, text: str, *, special: bool) -> Iterator[int]:
        separators, finder = self._separators[special], self._finders[special]
        names = (match for match in finder.finditer(text) if match[0] in separators) if finder else iter(())
        return (match.end() for match in islice(names, MOST_NAMES - 1, None, MOST_NAMES))


def _finder(names: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds names like these; None without any."""
    forms = [form.pattern for form in _FORMS if any(map(form.fullmatch, names))]
    return re.compile("|".join(forms)) if forms else None
