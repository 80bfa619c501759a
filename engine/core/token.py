"""Results of a row: a drawn token, or the score of a prompt token."""

from typing import NamedTuple, TypeAlias

from engine.events import Alternative

Score: TypeAlias = tuple[float, tuple[Alternative, ...]]
"""Log-probability of a prompt token under the model's unchanged distribution, and the most probable alternatives."""


class Token(NamedTuple):
    """A drawn token."""

    id: int
    """Its id."""
    piece: bytes
    """The bytes that it adds to the text."""
    ends: bool
    """True if it is one of the model's end tokens."""
    logprob: float | None = None
    """Its log-probability under the model's unchanged distribution; unset if not requested."""
    top: tuple[Alternative, ...] = ()
    """The most probable alternatives in descending order, as many as requested."""
