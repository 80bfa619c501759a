"""Spans of requests: one of the kind SERVER for each, with a child for each phase in the engine.

The children are made at the end of the request, from the times in its record, so that a token costs nothing.
"""

from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Span, SpanContext, SpanKind, StatusCode, Tracer, format_span_id, format_trace_id
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import override

from gateway.middleware.exchange import QUIET_PATHS, Exchange, Headers
from gateway.middleware.request_id import current_trace_id
from gateway.serving.records import Outcome, RequestRecord
from gateway.tracing.attributes import (
    exchange_attributes,
    first_attributes,
    has_failed,
    record_attributes,
    span_name,
)
from gateway.tracing.journal import SpanWriter
from gateway.tracing.phases import phases_of

RESPONSE_HEADER = b"traceresponse"
"""Header of every traced response, in the format of `traceparent`: the ids of the trace and of the request's span."""
_PROPAGATOR = TraceContextTextMapPropagator()


class _HeaderGetter(Getter[Headers]):
    """Reader of ASGI headers for OpenTelemetry."""

    @override
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        wanted = key.encode()
        return [value.decode("latin-1") for name, value in carrier if name == wanted] or None

    @override
    def keys(self, carrier: Headers) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier]


_GETTER = _HeaderGetter()


class Spans(SpanWriter):
    """Makes the spans of all requests with one tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[Exchange, Span] = {}

    @override
    def begin(self, exchange: Exchange, headers: Headers) -> Headers:
        if exchange.path in QUIET_PATHS:
            return ()
        span = self._tracer.start_span(
            span_name(exchange, None),
            _PROPAGATOR.extract(headers, getter=_GETTER),
            SpanKind.SERVER,
            first_attributes(exchange),
            start_time=exchange.began_ns,
        )
        self._open[exchange] = span
        context = span.get_span_context()
        exchange.trace_id, exchange.sampled = format_trace_id(context.trace_id), context.trace_flags.sampled
        current_trace_id.set(exchange.trace_id)
        return [(RESPONSE_HEADER, _response_header(context))]

    @override
    def end(self, exchange: Exchange, record: RequestRecord | None) -> None:
        runs_on = record is not None and record.outcome is None
        span = self._open.get(exchange) if runs_on else self._open.pop(exchange, None)
        if span is None:
            return
        ended = None if runs_on else record
        if span.is_recording():
            span.update_name(span_name(exchange, ended))
            span.set_attributes(exchange_attributes(exchange))
            if has_failed(exchange, ended):
                span.set_status(StatusCode.ERROR)
            if ended is not None:
                self._add_record(span, exchange, ended)
        span.end(None if exchange.ended_at is None else exchange.nanoseconds(exchange.ended_at))

    @override
    def end_background(self, exchange: Exchange, record: RequestRecord) -> None:
        if (parent := self._open.pop(exchange, None)) is None:
            return
        span = self._tracer.start_span(
            span_name(exchange, record),
            set_span_in_context(parent),
            start_time=exchange.nanoseconds(record.arrived_at),
        )
        if span.is_recording():
            if record.outcome is Outcome.FAILED:
                span.set_status(StatusCode.ERROR)
            self._add_record(span, exchange, record)
        span.end(exchange.nanoseconds(record.ended_at))

    def _add_record(self, span: Span, exchange: Exchange, record: RequestRecord) -> None:
        span.set_attributes(record_attributes(record))
        context = set_span_in_context(span)
        for phase in phases_of(record):
            child = self._tracer.start_span(phase.name, context, start_time=exchange.nanoseconds(phase.begin))
            child.end(exchange.nanoseconds(phase.end))


def _response_header(context: SpanContext) -> bytes:
    ids = f"{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}"
    return f"00-{ids}-{context.trace_flags:02x}".encode()
