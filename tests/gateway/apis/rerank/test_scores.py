"""The order of documents by their scores."""

import struct

import pytest

from engine import EmbeddingResult
from gateway.apis.rerank.scores import Ranked, ranked


def result(*scores: float) -> EmbeddingResult:
    """Return a result with two classes for each document, of which only the first one counts."""
    return EmbeddingResult(tuple(struct.pack("<2f", score, 9.0) for score in scores), (1,) * len(scores))


def test_equal_documents_keep_their_order() -> None:
    assert ranked(result(0.5, 1.0, 0.5), top=None, logits=False) == [Ranked(1, 1.0), Ranked(0, 0.5), Ranked(2, 0.5)]


def test_only_the_best_are_returned() -> None:
    assert ranked(result(0.0, 2.0, 1.0), top=1, logits=False) == [Ranked(1, 2.0)]


@pytest.mark.parametrize(("logit", "probability"), [(0.0, 0.5), (1e30, 1.0), (-1e30, 0.0)])
def test_logits_of_any_size_become_probabilities(logit: float, probability: float) -> None:
    [one] = ranked(result(logit), top=None, logits=True)
    assert one.score == probability
