"""The length of the numbers in JSON, which llguidance leaves open: a model in a loop writes zeros without an end."""

import re
from collections.abc import Sequence
from string import ascii_letters

import numpy as np

from engine.sampling.candidates import Mask

MOST_DIGITS = 40
"""Digits before the point of a number, and behind it. Doubles have up to 23 in JavaScript's notation, 128-bit decimals
have 34, and 128-bit integers 39."""
MOST_EXPONENT_DIGITS = 3
"""Digits of an exponent. Those of doubles end at 308 and -324."""

_FULL = re.compile(rb"[0-9]{%d}\Z|[0-9][eE][+-]?[0-9]{%d}\Z" % (MOST_DIGITS, MOST_EXPONENT_DIGITS))
_DIGITS = b"0123456789"
_OF_NUMBERS = _DIGITS + b".eE+-"
_OF_OTHERS = frozenset(ascii_letters.encode() + b'"') - frozenset(_OF_NUMBERS)
"""The bytes that can follow digits in a text, but not those of a number."""
_KEPT = 2 * MOST_DIGITS


class NumberLimit:
    """Ends the numbers of JSON in generated texts. Shared by all sequences, and safe in any thread.

    Digits in strings and in other text are free: there the grammar also allows quotes or letters.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        """Take the bytes of all tokens."""
        self._pieces = pieces
        self._digits = _beginning_with(pieces, frozenset(_DIGITS))
        self._zeros = _beginning_with(pieces, frozenset(b"0"))
        self._others = _beginning_with(pieces, _OF_OTHERS)

    def end_of(self, text: bytes, token: int) -> bytes:
        """Return the end of a text after a further token, as much of it as `applied` needs."""
        text += self._pieces[token]
        before = text.rstrip(_OF_NUMBERS)
        return before[-1:] + text[len(before) :][-_KEPT:]

    def applied(self, end: bytes, denied: Mask) -> Mask:
        """Return the mask of the next token without further digits, if a text ends with a number that is long enough.

        Where only digits can follow, as in 0.00 if it must be positive, those but zero stay.

        Args:
            end: the end of the text.
            denied: the tokens that the grammar denies.
        """
        if end[:1].isalpha() or end.startswith(b'"') or not _FULL.search(end) or not denied[self._others].all():
            return denied
        masks = (denied | self._digits, denied | self._zeros)
        return next((mask for mask in masks if not mask.all()), denied)


def _beginning_with(pieces: Sequence[bytes], beginnings: frozenset[int]) -> Mask:
    """Return the mask of the tokens whose first byte is one of these."""
    return np.fromiter((piece[:1] != b"" and piece[0] in beginnings for piece in pieces), np.bool_, len(pieces))
