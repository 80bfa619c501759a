"""Numbers of sequences that run and wait."""

import pytest

from engine import EngineMetrics
from gateway.metrics.sequences import load


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (EngineMetrics(), 0),
        (EngineMetrics(slots=4, held=2), 0.5),
        (EngineMetrics(slots=4, held=4, waiting=4), 2),
        (EngineMetrics(embedding_places=16, embedding_running=4, embedding_waiting=4), 0.25),
        (EngineMetrics(embedding_places=16, embedding_running=16, embedding_waiting=48), 3),
        (EngineMetrics(slots=4, held=1, embedding_places=16, embedding_running=8, embedding_waiting=8), 0.75),
    ],
)
def test_the_load_counts_choices_by_slots_and_inputs_by_places(metrics: EngineMetrics, expected: float) -> None:
    assert load(metrics) == expected
