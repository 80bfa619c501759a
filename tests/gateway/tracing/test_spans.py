"""Spans as a collector receives them: names, ids, parents, times, attributes."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from anyio import to_thread
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from gateway.keys.key import Key
from gateway.middleware.exchange import Exchange
from gateway.serving.records import Outcome, RequestRecord
from gateway.tracing import exporter
from gateway.tracing.opening import open_traces
from tests.gateway.tracing.collector import Collector, collecting, values_of
from tests.gateway.tracing.requests import PATH, Served, exchange_of, record_of
from tests.threads import refuse_in_thread, refuse_thread

pytestmark = pytest.mark.anyio

GUARD = 20
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        yield collector


def is_exporting(thread: Thread) -> bool:
    return thread.name.startswith("OtelBatch")


def refuse(exchange: Exchange) -> RequestRecord:
    """Return the record of a request that the engine failed at once."""
    times: dict[str, Any] = dict.fromkeys(("accepted_at", "started_at", "first_token_at"))
    return record_of(exchange, outcome=Outcome.FAILED, phase="queued", cause="engine_died", finish_reasons=(), **times)


def offsets(span: Span, exchange: Exchange) -> tuple[int, int]:
    """Return the times of a span in milliseconds since the begin of the exchange."""
    begin, end = span.start_time_unix_nano, span.end_time_unix_nano
    return round((begin - exchange.began_ns) / 1e6), round((end - exchange.began_ns) / 1e6)


async def test_a_request_is_a_server_span_with_its_phases(collector: Collector) -> None:
    async with open_traces("auto") as spans:
        served = Served(spans, record_of)
        call = await served.ask(traceparent=SAMPLED, tracestate="vendor=1")
    (exchange,) = served.exchanges
    span = collector.one("chat tiny")
    assert span.kind == Span.SPAN_KIND_SERVER
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state) == (TRACE, PARENT, "vendor=1")
    assert span.start_time_unix_nano == exchange.began_ns
    assert exchange.ended_at is not None
    assert span.end_time_unix_nano == exchange.nanoseconds(exchange.ended_at)
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert call.header("traceresponse") == f"00-{TRACE}-{span.span_id.hex()}-01"
    assert (exchange.trace_id, exchange.sampled) == (TRACE, True)
    children = collector.children(span)
    assert {child.trace_id.hex() for child in children} == {TRACE}
    assert [(child.name, *offsets(child, exchange)) for child in children] == [
        ("intake", 500, 1000),
        ("queue", 1000, 1500),
        ("prefill", 1500, 2000),
        ("decode", 2000, 2500),
    ]


async def test_the_attributes_of_a_chat(collector: Collector) -> None:
    async with open_traces("auto") as spans:
        served = Served(spans, partial(record_of, choices=2), key=Key(id="key_1", name="one"))
        await served.ask()
    found = values_of(collector.one("chat tiny").attributes)
    assert found.pop("llama_gateway.request.id") == served.exchanges[0].request_id
    assert found == {
        "http.request.method": "POST",
        "http.route": PATH,
        "http.response.status_code": 200,
        "http.request.body.size": 2,
        "http.response.body.size": 5,
        "url.path": PATH,
        "url.scheme": "http",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "llama.cpp",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.stream": True,
        "gen_ai.request.seed": 7,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 40,
        "gen_ai.request.frequency_penalty": 0.0,
        "gen_ai.request.presence_penalty": 0.0,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": 1.5,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.output_tokens": 6,
        "llama_gateway.key.id": "key_1",
        "llama_gateway.outcome": "finished",
        "llama_gateway.phase": "done",
        "llama_gateway.tokens.wasted": 0,
        "llama_gateway.tokens.drafted": 0,
        "llama_gateway.tokens.draft_accepted": 0,
    }


async def test_a_failure_is_an_error_with_its_cause(collector: Collector) -> None:
    async with open_traces("auto") as spans:
        await Served(spans, refuse).ask()
    span = collector.one("chat tiny")
    found = values_of(span.attributes)
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert (found["error.type"], found["llama_gateway.outcome"]) == ("engine_died", "failed")
    assert [child.name for child in collector.children(span)] == ["intake"]


async def test_a_cancel_has_its_phase_and_its_cause_and_is_no_error(collector: Collector) -> None:
    ended: dict[str, Any] = {
        "outcome": Outcome.CANCELLED,
        "phase": "prefill",
        "cause": "client_left",
        "release_seconds": 0.01,
    }
    async with open_traces("auto") as spans:
        await Served(spans, partial(record_of, first_token_at=None, wasted_tokens=64, **ended)).ask()
    span = collector.one("chat tiny")
    found = {name: value for name, value in values_of(span.attributes).items() if name.startswith("llama_gateway.")}
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert (
        found.items()
        >= {
            "llama_gateway.outcome": "cancelled",
            "llama_gateway.phase": "prefill",
            "llama_gateway.cause": "client_left",
            "llama_gateway.release_seconds": 0.01,
            "llama_gateway.tokens.wasted": 64,
        }.items()
    )
    assert [child.name for child in collector.children(span)] == ["intake", "queue", "prefill"]


async def test_a_request_without_a_model_is_a_plain_http_span(collector: Collector) -> None:
    async with open_traces("auto") as spans:
        call = await Served(spans).ask("/models")
    span = collector.one("POST /models")
    assert (call.header("traceresponse") or "").startswith(f"00-{span.trace_id.hex()}-{span.span_id.hex()}-")
    assert not any(name.startswith("gen_ai.") for name in values_of(span.attributes))
    assert collector.children(span) == []


async def test_the_span_of_a_method_that_http_does_not_define_has_no_name_of_the_client(collector: Collector) -> None:
    async with open_traces("auto") as spans:
        served = Served(spans)
        exchange = exchange_of(method="BREW")
        served.journal.begin(exchange, [])
        served.journal.end(exchange)
    span = collector.one(f"HTTP {PATH}")
    assert values_of(span.attributes)["http.request.method"] == "_OTHER"


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/metrics", "/livez", "/readyz"])
async def test_a_probe_has_no_span(collector: Collector, path: str) -> None:
    async with open_traces("auto") as spans:
        assert (await Served(spans).ask(path)).header("traceresponse") is None
    assert collector.spans == []


async def test_a_background_response_is_a_child_of_its_request(collector: Collector) -> None:
    async with open_traces("auto") as spans:
        served = Served(spans)
        journal = served.journal
        exchange = Exchange(request_id="a", method="POST", path="/v1/responses", status=200, began_ns=10**18)
        journal.begin(exchange, [])
        record = record_of(exchange)
        journal.record(replace(record, outcome=None))
        exchange.ended_at = 1.0
        journal.end(exchange)
        journal.record(record)
    span = collector.one("chat tiny")
    assert span.kind == Span.SPAN_KIND_INTERNAL
    assert span.parent_span_id == collector.one("POST").span_id
    assert [child.name for child in collector.children(span)] == ["intake", "queue", "prefill", "decode"]


@pytest.mark.parametrize(
    "variables",
    [{"OTEL_TRACES_SAMPLER": "always_off"}, {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}],
    ids=lambda variables: str(variables["OTEL_TRACES_SAMPLER"]),
)
async def test_a_request_that_is_not_sampled_keeps_its_trace_id(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with open_traces("auto") as spans:
        served = Served(spans, record_of)
        call = await served.ask(traceparent=SAMPLED)
    assert (call.header("traceresponse") or "").startswith(f"00-{TRACE}-")
    assert (call.header("traceresponse") or "").endswith("-00")
    assert [(exchange.trace_id, exchange.sampled) for exchange in served.exchanges] == [(TRACE, False)]
    assert collector.spans == []


async def test_the_callers_choice_not_to_sample_is_kept(collector: Collector) -> None:
    async with open_traces("auto") as spans:
        await Served(spans, record_of).ask(traceparent=f"00-{TRACE}-{PARENT}-00")
    assert collector.spans == []


@pytest.mark.parametrize(
    "parent", ["", "00-0-0-01", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", "x" * 999]
)
async def test_an_invalid_parent_begins_a_new_trace_and_is_not_logged(
    collector: Collector, caplog: pytest.LogCaptureFixture, parent: str
) -> None:
    async with open_traces("auto") as spans:
        await Served(spans, record_of).ask(traceparent=parent, tracestate="=,broken")
    span = collector.one("chat tiny")
    assert span.parent_span_id == b""
    assert span.trace_id.hex() != TRACE
    assert [line.name for line in caplog.records if line.name.startswith("opentelemetry")] == []


async def test_the_environment_names_the_service_and_the_headers(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
    async with open_traces("auto") as spans:
        await Served(spans, record_of).ask()
    (resource,) = collector.resources
    assert resource.items() >= {"service.name": "mine", "deployment.environment": "test"}.items()
    assert (collector.headers[0]["path"], collector.headers[0]["x-token"]) == ("/v1/traces", "secret")


async def test_the_service_has_a_name_of_its_own(collector: Collector) -> None:
    async with open_traces("on") as spans:
        await Served(spans, record_of).ask()
    assert collector.resources[0]["service.name"] == "llama-gateway"


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_BSP_SCHEDULE_DELAY", "0"), ("OTEL_BSP_MAX_QUEUE_SIZE", "1")], ids=["delay", "size"]
)
async def test_a_wrong_variable_is_one_line_and_no_trace(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    async with open_traces("auto") as spans:
        assert spans is None
    (line,) = caplog.records
    assert line.getMessage().startswith("no traces are sent, since a variable of OpenTelemetry is wrong: ")
    assert collector.spans == []


async def test_a_failing_collector_is_one_line_and_harms_no_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    caplog.set_level(logging.INFO)
    with collecting(status=500) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with open_traces("auto") as spans:
            served = Served(spans, record_of)
            for _ in range(3):
                assert (await served.ask()).status == 200
    assert len(collector.headers) > 1
    (line,) = [line for line in caplog.records if line.name.startswith("opentelemetry")]
    assert "Failed to export" in line.getMessage()


async def test_a_collector_that_is_down_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    async with open_traces("auto") as spans:
        assert (await Served(spans, record_of).ask()).status == 200
    (line,) = [line for line in caplog.records if line.levelno >= logging.WARNING]
    assert "Connection refused" in line.getMessage() or "Failed to export" in line.getMessage()


async def test_a_collector_that_does_not_answer_holds_up_the_stop_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporter, "STOP_TIMEOUT", 0.02)
    released = Event()
    with collecting(released=released) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with open_traces("auto") as spans:
            await Served(spans, record_of).ask()
        assert collector.spans == []
        released.set()
        for thread in filter(is_exporting, threading.enumerate()):  # its lines would be those of a later test
            thread.join(GUARD)
    assert [line.getMessage() for line in caplog.records] == ["the last spans could not be sent in time"]


@pytest.mark.parametrize(
    ("place", "name", "refusing"), [(Thread, "start", refuse_thread), (to_thread, "run_sync", refuse_in_thread)]
)
async def test_a_stop_without_a_thread_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: object, name: str, refusing: object
) -> None:
    monkeypatch.setattr(exporter, "BatchSpanProcessor", SimpleSpanProcessor)  # it needs no thread, and leaves none
    with monkeypatch.context() as full:
        async with open_traces("on"):
            full.setattr(place, name, refusing)
    (line,) = caplog.records
    assert line.getMessage() == "the last spans could not be sent: can't start new thread"


async def test_a_collector_that_works_again_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    class Moody(SpanExporter):
        def export(self, _spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    quiet = exporter.QuietExporter(Moody())
    line = logging.makeLogRecord({})
    assert [quiet.filter(line), quiet.filter(line)] == [True, False]
    quiet.export([])
    quiet.export([])
    assert [line.getMessage() for line in caplog.records] == ["spans are sent again"]
    assert quiet.filter(line)
