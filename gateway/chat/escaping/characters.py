"""Characters that a text inside of another one writes in a form of their own."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class Escaping:
    """Replacement of single characters."""

    characters: str
    """The characters that are replaced."""
    others: str
    """Class of all other characters, as a regular expression."""
    escape: Callable[[str], str]
    """Returns the expression of Lark for the replacement of a character."""
    tag: str = ""
    """The tag that ends the text, if one does."""

    def beginning(self, has: Callable[[str], bool]) -> str:
        """Return the expression for the longest beginning of the tag, of the characters that a class has."""
        first, *others = takewhile(has, self.tag[:-1])
        pattern = ""
        for character in reversed(others):
            pattern = f"({_in_slashes(character)}{pattern})?"
        return f"/{_in_slashes(first)}{pattern}/"

    def text(self, text: str, flags: str = "") -> str:
        """Return the expression for a text that is escaped. `flags` are those of a literal in Lark."""
        parts = re.split(f"([{re.escape(self.characters)}])", text)
        written = [
            self.escape(part) if part in self.characters else json.dumps(part, ensure_ascii=False) + flags
            for part in parts
            if part
        ]
        return f"({' '.join(written or [EMPTY])})"


def _in_slashes(character: str) -> str:
    return r"\/" if character == "/" else re.escape(character)


EMPTY = '""'
"""Expression for the empty text."""
IN_JSON = Escaping(
    "".join(map(chr, range(0x20))) + '"\\',
    r'[^"\\\x00-\x1f]',
    lambda character: json.dumps(json.dumps(character)[1:-1]),
)
"""In a JSON string."""


def before(tag: str) -> Escaping:
    """Return the escaping of a text that ends at a tag: no lexeme may run into the tag, so its first character is one.

    The lexer takes the tag, which is longer, where it stands. But a text that might end there, and only begins like the
    tag, has taken the lexer too far to go back: so a run of any characters takes a beginning of the tag as one lexeme.
    """
    first = tag[0]
    return Escaping(first, f"[^{re.escape(first)}]", json.dumps, tag)
