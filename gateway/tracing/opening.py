"""Start and stop of the traces."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.tracing.choice import Choice, wants_traces
from gateway.tracing.journal import SpanWriter


@asynccontextmanager
async def open_traces(choice: Choice) -> AsyncIterator[SpanWriter | None]:
    """Send spans while the context is open, if the flag and the environment ask for them."""
    if not wants_traces(choice, os.environ):
        yield None
        return
    from gateway.tracing.exporter import open_spans  # noqa: PLC0415 - its packages are an extra, and take 0.2 s

    async with open_spans() as spans:
        yield spans
