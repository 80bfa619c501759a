"""JSON of large answers in pieces, which are encoded one by one, so that the event loop serves others in between."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson

TOKENS_PER_PIECE = 64
"""Tokens with log-probabilities in one piece. To encode them takes 2 milliseconds at most."""

_HOLE = b"\0"
"""A byte that JSON never has: strings escape it."""

HOLE: Any = orjson.Fragment(_HOLE)
"""Placeholder in an answer for JSON that is encoded apart."""


def filled(answer: object, *holes: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the JSON of an answer. Its `HOLE`s are filled with the pieces in `holes`, in the same order."""
    first, *others = orjson.dumps(answer).split(_HOLE)
    yield first
    for pieces, text in zip(holes, others, strict=True):
        yield from pieces
        yield text


def array(items: Iterable[object], per_piece: int) -> Iterator[bytes]:
    """Yield a JSON array of items, with so many items in each piece."""
    left = iter(items)
    separator = b"["
    while piece := list(islice(left, per_piece)):
        yield separator + orjson.dumps(piece)[1:-1]
        separator = b","
    yield b"[]" if separator == b"[" else b"]"


def array_of_pieces(items: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield a JSON array of items that come in pieces themselves."""
    yield b"["
    for at, pieces in enumerate(items):
        if at:
            yield b","
        yield from pieces
    yield b"]"
