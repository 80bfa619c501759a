"""Blocks of a response, made of smaller pieces."""

from collections.abc import Iterable, Iterator

BLOCK = 64 * 1024
"""Size from which pieces are sent, in bytes. To encode one block takes about a millisecond."""


def blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join pieces to blocks of at least `BLOCK` bytes; the last may be smaller. Takes no piece before it is needed."""
    ready: list[bytes] = []
    size = 0
    for piece in pieces:
        ready.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield b"".join(ready)
            ready, size = [], 0
    if ready:
        yield b"".join(ready)
