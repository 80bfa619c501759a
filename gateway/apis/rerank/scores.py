"""Order of documents by the scores of a model."""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from engine import EmbeddingResult

_FLOAT = struct.Struct("<f")


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document and its score."""

    index: int
    """Position of the document in the request."""
    score: float
    """Its relevance."""


def ranked(result: EmbeddingResult, *, top: int | None, logits: bool) -> list[Ranked]:
    """Return the most relevant documents, best first; equal ones in their order.

    Args:
        result: the engine's result.
        top: number of documents; None returns all.
        logits: whether the model's scores are logits that become probabilities.
    """
    by_score = sorted(enumerate(_scores(result)), key=lambda one: -one[1])
    return [Ranked(index, _probability(score) if logits else score) for index, score in by_score[:top]]


def _scores(result: EmbeddingResult) -> Iterator[float]:
    for numbers in result.vectors:
        (score,) = _FLOAT.unpack_from(numbers)  # the first class is that of relevance
        yield score


def _probability(logit: float) -> float:
    """Return the logistic function, without an overflow."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    return math.exp(logit) / (1 + math.exp(logit))
