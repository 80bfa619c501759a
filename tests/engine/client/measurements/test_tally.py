"""Histograms, tallies of requests and totals of engines."""

import pytest

from engine.client.measurements.histogram import Histogram
from engine.client.measurements.tally import Tally
from engine.client.measurements.telemetry import Totals
from engine.events import Embedded, Finished, FinishReason, Text
from engine.info import EngineMetrics
from engine.request import EmbeddingRequest, GenerationRequest

GAPS = (1.0, 2.0, 4.0)


def finished(choice: int, tokens: int, cached: int = 0, decode_seconds: float = 0.0) -> Finished:
    return Finished(choice, "", FinishReason.STOP, tokens, cached, decode_seconds=decode_seconds, drafted=3, accepted=2)


def tally_of(*prompts: str, n: int = 1, stream: bool = False) -> tuple[Tally, Histogram]:
    gaps = Histogram(GAPS)
    return Tally(GenerationRequest(id="r", prompts=prompts, n=n, stream=stream), gaps), gaps


def test_a_bound_belongs_to_the_values_below_it() -> None:
    histogram = Histogram(GAPS)
    for value in (0, 1.0, 1.5, 4.0, 9.0):
        histogram.add(value)
    histogram.add(3.0, times=2)
    assert histogram.counts == [2, 1, 3, 1]
    assert histogram.sum == 21.5


def test_each_prompt_and_its_cached_tokens_count_once() -> None:
    tally, _ = tally_of("a", "b", n=2)
    for choice, cached in enumerate([5, 9, 7, 9]):
        tally.end_part(finished(choice, 10, cached), 0.0)
    assert tally.read_tokens((100, 20)) == 120
    assert (tally.cached_tokens, tally.completion_tokens, tally.ended) == (12, 40, 4)
    assert (tally.drafted, tally.accepted) == (12, 8)


def test_a_prompt_counts_once_one_of_its_choices_has_ended() -> None:
    tally, _ = tally_of("a", "b", n=2)
    tally.end_part(finished(3, 10), 0.0)
    assert tally.read_tokens((100, 20)) == 20


def test_inputs_to_embed_are_read_one_by_one() -> None:
    tally = Tally(EmbeddingRequest(id="r", inputs=("a", "b")), Histogram(GAPS))
    tally.end_part(Embedded(1, b""), 0.0)
    assert (tally.read_tokens((3, 4)), tally.ended) == (4, 1)


def test_the_gaps_of_a_stream_are_those_between_the_texts_of_each_choice() -> None:
    tally, gaps = tally_of("a", n=2, stream=True)
    for choice, now in ((0, 10.0), (1, 10.5), (0, 11.5), (1, 14.0)):
        tally.time_text(Text(choice, "a"), now)
    tally.end_part(finished(0, 3), 13.5)
    assert gaps.sum == pytest.approx(1.5 + 3.5 + 2.0)
    assert sum(gaps.counts) == 3


def test_a_part_of_a_text_that_is_not_streamed_says_nothing_of_gaps() -> None:
    tally, gaps = tally_of("a")
    for now in (10.0, 11.0):
        tally.time_text(Text(0, "a"), now)
    tally.end_part(finished(0, 3, decode_seconds=4.0), 13.5)
    assert (gaps.sum, sum(gaps.counts)) == (4.0, 2)


def test_without_a_stream_the_gaps_are_equal() -> None:
    tally, gaps = tally_of("a")
    tally.begin_token(10.0)
    tally.end_part(finished(0, 5), 16.0)
    assert (gaps.counts, gaps.sum) == ([0, 4, 0, 0], 6.0)


def test_of_several_choices_without_a_stream_the_decode_steps_count() -> None:
    """They do not begin together, and only the first token of all is timed."""
    tally, gaps = tally_of("a", n=2)
    tally.begin_token(10.0)
    tally.end_part(finished(0, 5, decode_seconds=2.0), 100.0)
    assert (gaps.counts, gaps.sum) == ([4, 0, 0, 0], 2.0)


def test_a_replay_begins_with_nothing() -> None:
    tally, _ = tally_of("a")
    tally.begin_token(1.0)
    tally.end_part(finished(0, 5), 2.0)
    assert tally.longest_choice == 5
    tally.reset()
    assert (tally.ended, tally.first_token_at, tally.completion_tokens, tally.reasons) == (0, None, 0, {})
    assert tally.longest_choice == 0


def test_counters_go_on_where_the_last_process_ended() -> None:
    totals = Totals()
    totals.record(EngineMetrics(slots=4, held=2, steps=5, generated_tokens=10, accepted_by_position=(4, 1)))
    totals.end_process()
    assert totals.metrics() == EngineMetrics(steps=5, generated_tokens=10, accepted_by_position=(4, 1))
    totals.record(EngineMetrics(slots=4, held=1, steps=1, generated_tokens=3, accepted_by_position=(2,)))
    assert totals.metrics() == EngineMetrics(slots=4, held=1, steps=6, generated_tokens=13, accepted_by_position=(6, 1))


def test_the_tokens_of_a_step_are_counted_from_the_start_of_each_process() -> None:
    totals = Totals()
    for tokens in (100, 40):
        totals.record(EngineMetrics(steps=1, prompt_tokens=tokens))
        totals.end_process()
    assert (totals.step_tokens.sum, sum(totals.step_tokens.counts)) == (140, 2)
