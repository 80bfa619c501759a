"""Deltas of a whole text."""

import anyio.lowlevel

from gateway.chat.deltas import Delta, FormatParser

CHARACTERS_PER_PIECE = 2**14
"""Characters of an answer that are parsed at once."""


async def read_deltas(parser: FormatParser, text: str) -> list[Delta]:
    """Return the deltas of a choice's whole text. Lets other tasks run while it parses a long text."""
    deltas: list[Delta] = []
    for start in range(0, len(text), CHARACTERS_PER_PIECE):
        deltas += parser.feed(text[start : start + CHARACTERS_PER_PIECE])
        await anyio.lowlevel.checkpoint()
    return deltas + parser.finish()
