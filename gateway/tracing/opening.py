"""Start and stop of the traces."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.tracing.choice import Choice, wants_traces
from gateway.tracing.journal import SpanWriter

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_traces(choice: Choice) -> AsyncIterator[SpanWriter | None]:
    """Send spans while the context is open, if the flag and the environment ask for them.

    A wrong variable of OpenTelemetry is logged, and then no spans are sent: they are not worth a server that is down.
    """
    if not wants_traces(choice, os.environ):
        yield None
        return
    from gateway.tracing.exporter import open_spans  # noqa: PLC0415 - its packages are an extra, and take 0.2 s

    async with AsyncExitStack() as stack:
        spans: SpanWriter | None = None
        try:
            spans = await stack.enter_async_context(open_spans())
        except ValueError as error:
            logger.error("no traces are sent, since a variable of OpenTelemetry is wrong: %s", error)  # noqa: TRY400
        yield spans
