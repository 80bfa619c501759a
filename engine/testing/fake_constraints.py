"""Constraints of the fake runner: the only text of a grammar, and tokens that must not come yet."""

from collections.abc import Collection

from engine.core.sequence import Sequence
from engine.testing.fake_model import END


def allows(sequence: Sequence, cells: list[int], tokens: Collection[int]) -> bool:
    """Return whether these tokens may come next.

    Args:
        sequence: the sequence.
        cells: the tokens before the next one.
        tokens: the tokens in question.
    """
    if isinstance(sequence.grammar, bytes) and rest_of(sequence.grammar, sequence, cells)[: len(tokens)] != [*tokens]:
        return False
    return barred_tokens(sequence, cells).isdisjoint(tokens)


def rest_of(grammar: bytes, sequence: Sequence, cells: list[int]) -> list[int]:
    """Return the tokens that the only text of a grammar still has."""
    return [*grammar, END][_generated(sequence, cells) :]


def barred_tokens(sequence: Sequence, cells: list[int]) -> set[int]:
    """Return the tokens that must not come yet."""
    sampling = sequence.request.sampling
    early = _generated(sequence, cells) < sampling.min_tokens
    barred = {END} if early or sampling.ignore_eos else set()
    return barred | (sequence.stop_tokens if early else set())


def _generated(sequence: Sequence, cells: list[int]) -> int:
    return len(cells) + sequence.discarded - sequence.prompt
