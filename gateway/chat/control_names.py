"""Names of control tokens in texts."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""Start and end of a part of a text."""

_MAX_DEPTH = 32
"""Maximum number of nested groups in a pattern."""


_ESCAPED = frozenset("\"'\\")
"""Characters that are no marks, because templates must still be able to escape them."""


class ControlNames:
    """Finds the names of a model's control tokens, and parts that could form one together with other text."""

    alphabet: frozenset[str]
    """The characters that `find_marks` may return the positions of."""

    def __init__(self, names: Collection[str]) -> None:
        known = sorted({name for name in names if name.strip()})
        self._marks = {name: _marks(name) or tuple(range(len(name))) for name in known}
        self._inner = {name[1:-1]: _marks(name[1:-1]) or tuple(range(len(name) - 2)) for name in known if name[1:-1]}
        self._longest = max(map(len, known), default=0)
        self._joined = "\0".join(["", *known, ""])
        self._firsts, self._lasts = {name[0] for name in known}, {name[-1] for name in known}
        self._pattern = re.compile(f"(?=({_longest_of(known)}))") if known else None
        self.alphabet = frozenset("".join(known))

    def find(self, text: str) -> Iterator[Span]:
        """Return where a name begins, and where the longest name from there ends, in order. Names may overlap."""
        return (match.span(1) for match in self._pattern.finditer(text)) if self._pattern else iter(())

    def find_marks(self, text: str) -> Iterator[int]:
        """Return the positions without which neither the text nor a longer text around it has a name.

        These are the characters of names that are no letters, digits or quotes; or all, where a name has no other.
        A name in the middle of the text counts; so does a beginning of one at the text's end, an end of one at its
        beginning, and a text to which only the first and the last character of a name are missing.
        """
        if self._pattern is None:
            return
        for match in self._pattern.finditer(text):
            start = match.start()
            for mark in self._marks[match[1]]:
                yield start + mark
        yield from self._inner.get(text, ())
        yield from self._at_the_ends(text)

    def _at_the_ends(self, text: str) -> Iterator[int]:
        size = len(text)
        for start in range(max(0, size - self._longest + 1), size):
            if text[start] in self._firsts and f"\0{text[start:]}" in self._joined:
                yield from (start + mark for mark in _marks(text[start:]))
                break
        for end in range(min(size, self._longest - 1), 0, -1):
            if text[end - 1] in self._lasts and f"{text[:end]}\0" in self._joined:
                yield from _marks(text[:end])
                break


def _marks(text: str) -> Sequence[int]:
    return tuple(at for at, one in enumerate(text) if not (one.isalnum() or one.isspace() or one in _ESCAPED))


def _longest_of(names: Sequence[str], depth: int = 0) -> str:
    """Return a pattern of the longest of sorted names. It is a tree, so that no text is compared with each name."""
    if depth == _MAX_DEPTH:
        return f"(?:{'|'.join(map(re.escape, reversed(names)))})"
    branches = [
        re.escape(first) + _longest_of([name[1:] for name in group], depth + 1)
        for first, group in groupby(names, key=lambda name: name[:1])
        if first
    ]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if names[0] == '' else ''}"
