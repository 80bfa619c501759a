"""Whole numbers in texts: in a path, a query or a key."""

_MOST_DIGITS = 18
"""So many fit into 64 bits. Python refuses to read thousands."""


def whole_number(text: str) -> int | None:
    """Return the number of a text that has only its digits; None for another text, or one of more than 18 digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
