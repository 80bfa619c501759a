"""Sender of spans: OpenTelemetry's batches over HTTP, in a thread of their own."""

import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from typing_extensions import override

from engine.errors import lacks_thread
from gateway import __version__
from gateway.tracing.spans import Spans

logger = logging.getLogger(__name__)

STOP_TIMEOUT = 5.0
"""Seconds in which the last spans must be sent when the server stops. Later ones are lost."""
_EXPORT_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""Loggers with a line for each batch that cannot be sent, and for each span that finds the queue full."""
_HEADER_LOGGER = "opentelemetry.trace"
"""Logger with a warning for each invalid header of a client."""


class QuietExporter(SpanExporter):
    """Exporter that logs the first failure in a row, and the next success, and nothing in between."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._failing = False

    def filter(self, _line: logging.LogRecord) -> bool:
        """Return True for the first line about a failure, as a filter of the exporter's loggers."""
        first, self._failing = not self._failing, True
        return first

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS and self._failing:
            self._failing = False
            logger.info("spans are sent again")
        return result

    @override
    def shutdown(self) -> None:
        self._exporter.shutdown()


@asynccontextmanager
async def open_spans() -> AsyncIterator[Spans]:
    """Send spans while the context is open, to the endpoint and with the sampler that the environment names.

    Leaving it waits until the last ones are sent, for a bounded time.
    """
    exporter = QuietExporter(OTLPSpanExporter())
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    level = logging.getLogger(_HEADER_LOGGER).level
    logging.getLogger(_HEADER_LOGGER).setLevel(logging.ERROR)
    for name in _EXPORT_LOGGERS:
        logging.getLogger(name).addFilter(exporter.filter)
    try:
        yield Spans(provider.get_tracer("llama_gateway", __version__))
    finally:
        await _stop(provider)
        for name in _EXPORT_LOGGERS:
            logging.getLogger(name).removeFilter(exporter.filter)
        logging.getLogger(_HEADER_LOGGER).setLevel(level)


async def _stop(provider: TracerProvider) -> None:
    """Shut the provider down in a thread that is left behind if a collector does not answer in time."""
    thread = threading.Thread(target=provider.shutdown, daemon=True)
    try:
        thread.start()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(thread.join, STOP_TIMEOUT)
    except RuntimeError as error:
        if not lacks_thread(error):
            raise
        logger.warning("the last spans could not be sent: %s", error)
        return
    if thread.is_alive():
        logger.warning("the last spans could not be sent in time")


def _resource() -> Resource:
    """Return the names of this program; those in the environment win."""
    return Resource.create({SERVICE_NAME: "llama-gateway", SERVICE_VERSION: __version__}).merge(
        OTELResourceDetector().detect()
    )
