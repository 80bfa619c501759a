"""Exemplars: a trace for each bucket of a histogram (OpenMetrics 1.0)."""

import time
from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.samples import Exemplar

from engine import Histogram
from gateway.middleware.exchange import Exchange


class ExemplarHistogram(Histogram):
    """Histogram that remembers the trace of the last value in each bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self.exemplars: list[Exemplar | None] = [None] * len(self.counts)
        """Last trace of each count; unset for a count without traces."""

    def add_from(self, exchange: Exchange, value: float) -> None:
        """Add a value of a request. Only traces that are sent become exemplars."""
        self.add(value)
        if exchange.sampled:
            exemplar = Exemplar({"trace_id": str(exchange.trace_id)}, value, time.time())
            self.exemplars[bisect_left(self.bounds, value)] = exemplar
