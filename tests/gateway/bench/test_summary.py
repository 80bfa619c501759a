"""Summaries of outcomes at virtual times."""

import random

import pytest

from gateway.bench.outcome import Failure, Outcome, Usage
from gateway.bench.summary import FailureCount, Percentiles, percentiles, summarise


def streamed(begun: float, *times: float, tokens: int | None = None) -> Outcome:
    usage = Usage(16, tokens) if tokens else None
    return Outcome(begun, times[-1], tuple((time, 1) for time in times), usage)


def test_percentiles_are_interpolated_and_need_no_order() -> None:
    times = [float(value) for value in range(101)]
    random.Random(1).shuffle(times)
    assert percentiles(times) == pytest.approx(Percentiles(101, 50.0, 50.0, 90.0, 99.0, 100.0))
    assert percentiles([1.0, 2.0]) == pytest.approx(Percentiles(2, 1.5, 1.5, 1.9, 1.99, 2.0))


def test_percentiles_of_one_value_and_of_no_value() -> None:
    assert percentiles([3.0]) == Percentiles(1, 3.0, 3.0, 3.0, 3.0, 3.0)
    assert percentiles([]) is None


def test_throughput_is_over_the_time_from_the_first_request_to_the_last_end() -> None:
    summary = summarise(2, [streamed(1.0, 2.0, 3.0, tokens=2), streamed(1.5, 4.0, 5.0, tokens=6)])
    assert (summary.seconds, summary.tokens, summary.tokens_per_second) == (4.0, 8, 2.0)
    assert (summary.prompt_tokens, summary.counted_by, summary.tokens_per_read) == (32, "usage", 2.0)
    assert (summary.requests, summary.succeeded, summary.failures) == (2, 2, [])
    assert summary.time_to_first_token
    assert summary.time_to_first_token.p50 == 1.75
    assert summary.end_to_end
    assert summary.end_to_end.max == 3.5
    assert summary.read_gap
    assert summary.read_gap.p50 == 1.0
    assert summary.inter_token
    assert (summary.inter_token.mean, summary.inter_token.max) == pytest.approx(((1 + 1 / 3) / 2, 1.0))


def test_chunks_are_counted_if_one_answer_has_no_usage() -> None:
    summary = summarise(1, [streamed(0.0, 1.0, tokens=5), streamed(0.0, 1.0, 2.0)])
    assert (summary.tokens, summary.counted_by, summary.prompt_tokens) == (7, "chunks", None)


def test_only_good_answers_count() -> None:
    bad = Outcome(0.0, 9.0, ((1.0, 50),), Usage(16, 50), Failure("cut", "it ended"))
    summary = summarise(1, [streamed(1.0, 2.0, tokens=1), bad, bad])
    assert (summary.tokens, summary.seconds, summary.succeeded) == (1, 9.0, 1)
    assert summary.failures == [FailureCount("cut", "it ended", 2)]
    assert summary.end_to_end
    assert summary.end_to_end.max == 1.0


def test_a_stage_without_a_good_answer_has_no_measurement() -> None:
    summary = summarise(8, [Outcome(1.0, 1.0, failure=Failure("connection", "Connection refused"))])
    assert (summary.tokens, summary.tokens_per_second, summary.tokens_per_read) == (None, None, None)
    assert (summary.time_to_first_token, summary.inter_token, summary.end_to_end) == (None, None, None)


def test_whole_answers_without_usage_have_an_end_only() -> None:
    summary = summarise(1, [Outcome(0.0, 2.0)])
    assert (summary.tokens, summary.tokens_per_second, summary.time_to_first_token) == (None, None, None)
    assert summary.end_to_end == Percentiles(1, 2.0, 2.0, 2.0, 2.0, 2.0)
