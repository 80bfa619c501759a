"""Metrics of requests, from records made by hand."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from gateway.metrics.exposition import Exposition
from gateway.metrics.requests import MOST_JOINED, RequestMetrics
from gateway.middleware.caller import Caller
from gateway.middleware.exchange import Exchange
from gateway.serving.records import Operation, Outcome, RequestRecord
from tests.gateway.metrics.scraped import Scrape

MODEL = "tiny"
FINISHED = RequestRecord(
    caller=Caller(request_id="r"),
    model=MODEL,
    operation=Operation.CHAT,
    stream=True,
    choices=2,
    max_tokens=100,
    arrived_at=10.0,
    accepted_at=10.1,
    started_at=11.0,
    first_token_at=13.0,
    ended_at=17.0,
    prompt_tokens=30,
    cached_tokens=20,
    completion_tokens=42,
    longest_choice=30,
    accepted=True,
    outcome=Outcome.FINISHED,
    phase="done",
    finish_reasons=("stop", "length"),
)


def scraped(*records: RequestRecord, running: int = 0) -> Scrape:
    """Return the metrics after the begin and the end of these records, and the begin of others."""
    metrics = RequestMetrics([MODEL])
    begun = [*records, *[FINISHED] * running]
    for record in begun:
        metrics.observe(replace(record, outcome=None, accepted=False))
    for record in begun:
        if record.accepted:
            metrics.observe(replace(record, outcome=None))
    for record in records:
        metrics.observe(record)
    return Scrape(tuple(metrics.collect()))


TIMES = {
    "vllm:time_to_first_token_seconds": 3.0,
    "vllm:request_queue_time_seconds": 1.0,
    "vllm:request_prefill_time_seconds": 2.0,
    "vllm:request_decode_time_seconds": 4.0,
    "vllm:request_inference_time_seconds": 6.0,
    "vllm:e2e_request_latency_seconds": 7.0,
    "vllm:request_time_per_output_token_seconds": 0.2,
    "vllm:request_prompt_tokens": 30,
    "vllm:request_generation_tokens": 42,
    "vllm:request_max_num_generation_tokens": 30,
    "vllm:request_params_max_tokens": 100,
    "vllm:request_params_n": 2,
}


@pytest.mark.parametrize("name", TIMES)
def test_a_finished_request_is_in_every_histogram(name: str) -> None:
    found = scraped(FINISHED)
    assert found.value(f"{name}_count", model_name=MODEL, engine="0") == 1
    assert found.value(f"{name}_sum") == pytest.approx(TIMES[name])
    assert found.value(f"{name}_bucket", le="+Inf") == 1


def exemplars(found: Scrape, name: str) -> dict[str, tuple[str, float]]:
    """Return the trace and the value of each bucket that has an exemplar."""
    samples = (sample for family in found.families for sample in family.samples if sample.name == f"{name}_bucket")
    shown = {sample.labels["le"]: sample.exemplar for sample in samples}
    return {le: (one.labels["trace_id"], one.value) for le, one in shown.items() if one is not None}


def of_trace(trace: str, *, sampled: bool = True, **changes: Any) -> RequestRecord:
    """Return a finished request of a trace."""
    exchange = Exchange(trace_id=trace, sampled=sampled)
    return replace(FINISHED, caller=Caller(request_id="r", exchange=exchange), **changes)


@pytest.mark.parametrize("name", TIMES)
def test_each_histogram_has_the_trace_of_the_last_value_in_a_bucket(name: str) -> None:
    ((trace, value),) = exemplars(scraped(of_trace("a"), of_trace("b")), name).values()
    assert trace == "b"
    assert value == pytest.approx(TIMES[name])


def test_exemplars_are_in_openmetrics_only_as_text_has_none() -> None:
    metrics = RequestMetrics([MODEL])
    for outcome in (None, Outcome.FINISHED):
        metrics.observe(of_trace("4bf92f3577b34da6a3ce929d0e0e4736", outcome=outcome, accepted=outcome is not None))
    exposition = Exposition([metrics])
    page = exposition.page("application/openmetrics-text")
    found = Scrape(tuple(read_openmetrics(page.text.decode())))  # type: ignore[no-untyped-call]
    assert exemplars(found, "vllm:e2e_request_latency_seconds") == {"10.0": ("4bf92f3577b34da6a3ce929d0e0e4736", 7.0)}
    assert b"4bf92f" not in exposition.page("*/*").text


def test_only_the_bucket_that_a_value_adds_to_has_its_trace() -> None:
    found = scraped(of_trace("a"), of_trace("b", started_at=12.0), of_trace("c", sampled=False), FINISHED)
    assert exemplars(found, "vllm:request_queue_time_seconds") == {"1.0": ("a", 1.0), "2.0": ("b", 2.0)}


def test_a_cancelled_request_is_an_exemplar_of_its_release() -> None:
    cancelled = of_trace("a", outcome=Outcome.CANCELLED, cause="client_left", release_seconds=0.001, wasted_tokens=3)
    found = scraped(cancelled)
    assert list(exemplars(found, "llama_gateway_release_seconds").values()) == [("a", 0.001)]
    assert list(exemplars(found, "llama_gateway_wasted_tokens").values()) == [("a", 3)]


def test_a_value_is_in_the_buckets_from_its_own_on() -> None:
    found = scraped(FINISHED)
    buckets = {le: found.value("vllm:request_queue_time_seconds_bucket", le=le) for le in ("0.8", "1.0", "1.5")}
    assert buckets == {"0.8": 0, "1.0": 1, "1.5": 1}


def test_reasons_are_counted_by_choice() -> None:
    found = scraped(FINISHED)
    reasons = ("stop", "length", "abort", "error")
    counts = {reason: found.value("vllm:request_success_total", finished_reason=reason) for reason in reasons}
    assert counts == {"stop": 1, "length": 1, "abort": 0, "error": 0}


def ended(outcome: Outcome, cause: str, **fields: Any) -> RequestRecord:
    return replace(FINISHED, outcome=outcome, cause=cause, finish_reasons=(), **fields)


def test_a_cancel_has_its_phase_its_cause_and_its_costs() -> None:
    found = scraped(ended(Outcome.CANCELLED, "client_left", phase="decode", release_seconds=0.004, wasted_tokens=3))
    assert found.value("llama_gateway_cancellations_total", phase="decode", cause="client_left") == 1
    assert found.value("llama_gateway_release_seconds_bucket", le="0.005") == 1
    assert found.value("llama_gateway_release_seconds_bucket", le="0.0025") == 0
    assert found.value("llama_gateway_wasted_tokens_sum") == 3
    assert found.value("vllm:request_success_total", finished_reason="abort") == 1
    assert found.value("vllm:time_to_first_token_seconds_count") == 1
    assert found.value("vllm:e2e_request_latency_seconds_count") == 0


def test_a_request_that_never_left_the_queue_has_no_times() -> None:
    nothing = {"started_at": None, "first_token_at": None}
    found = scraped(ended(Outcome.CANCELLED, "queue_timeout", phase="queued", **nothing))
    assert found.value("vllm:request_queue_time_seconds_count") == 0
    assert found.value("vllm:time_to_first_token_seconds_count") == 0


def test_failures_and_refusals_are_counted_by_their_codes() -> None:
    found = scraped(
        ended(Outcome.FAILED, "engine_died", phase="decode"),
        ended(Outcome.REFUSED, "queue_full", phase="intake", accepted=False),
    )
    assert found.value("llama_gateway_failures_total", code="engine_died") == 1
    assert found.value("llama_gateway_refusals_total", reason="queue_full") == 1
    assert found.value("vllm:request_success_total", finished_reason="error") == 1


def test_replays_are_counted() -> None:
    assert scraped(FINISHED, replace(FINISHED, replayed=True)).value("llama_gateway_replays_total") == 1


def test_embeddings_are_in_no_histogram_of_generations() -> None:
    found = scraped(replace(FINISHED, operation=Operation.EMBEDDINGS))
    assert found.value("llama_gateway_requests_total", operation="embeddings") == 1
    assert found.value("vllm:e2e_request_latency_seconds_count") == 0


def test_counts_of_models_that_joined_are_bounded_but_not_those_of_named_and_busy_ones() -> None:
    metrics = RequestMetrics([MODEL])
    begun = [replace(FINISHED, model=f"pulled-{at}", outcome=None, accepted=False) for at in range(2 * MOST_JOINED)]
    metrics.observe(begun[0])
    for record in begun[1:]:
        metrics.observe(record)
        metrics.observe(replace(record, outcome=Outcome.REFUSED))
    metrics.observe(replace(begun[0], outcome=Outcome.FAILED))
    (counts,) = (family for family in metrics.collect() if family.name == "llama_gateway_requests_in_progress")
    kept = {sample.labels["model_name"]: sample.value for sample in counts.samples}
    latest = [record.model for record in begun[1 - MOST_JOINED :]]
    assert kept == dict.fromkeys([MODEL, begun[0].model, *latest], 0)


def test_no_client_is_a_label() -> None:
    names = {name for family in scraped(FINISHED).families for sample in family.samples for name in sample.labels}
    assert names <= {"model_name", "engine", "le", "finished_reason", "operation", "outcome", "phase", "cause"}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(Outcome)), st.booleans()), max_size=30), st.integers(0, 5))
def test_accepted_requests_are_finished_failed_cancelled_or_running(
    ends: list[tuple[Outcome, bool]], running: int
) -> None:
    """A request may also be cancelled, or fail, before it is accepted, and one that was refused never was accepted."""
    records = (
        ended(outcome, "some cause", phase="decode", accepted=accepted and outcome is not Outcome.REFUSED)
        for outcome, accepted in ends
    )
    found = scraped(*records, running=running)

    def count(outcome: Outcome) -> float:
        return found.value("llama_gateway_request_outcomes_total", outcome=outcome.value)

    in_progress = found.value("llama_gateway_requests_in_progress")
    accepted = found.value("llama_gateway_requests_accepted_total")
    assert in_progress == found.value("llama_gateway_requests_running") == running
    assert accepted == sum(map(count, set(Outcome) - {Outcome.REFUSED})) + in_progress
    assert found.value("llama_gateway_requests_total") == accepted + count(Outcome.REFUSED)
    assert count(Outcome.CANCELLED) == found.value("llama_gateway_cancellations_total")
    assert count(Outcome.FAILED) == found.value("llama_gateway_failures_total")
    assert count(Outcome.REFUSED) == found.value("llama_gateway_refusals_total")
