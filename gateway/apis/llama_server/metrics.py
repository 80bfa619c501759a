"""Endpoint `/metrics`: the metrics of the server and its engines for Prometheus."""

import time

from gateway.apis.answers.reply import TextReply
from gateway.apis.endpoint import AnyEndpoint, BodilessEndpoint, Call
from gateway.apis.llama_server.options import NOT_ALLOWED, refused
from gateway.metrics.exposition import Exposition

_STARTED = "process-start-time-unix"


class MetricsEndpoints:
    """Handlers of the metrics. They use what the engines sent last, so that they never wait for an engine."""

    def __init__(self, exposition: Exposition, *, allowed: bool = True) -> None:
        self._exposition = exposition
        self._allowed = allowed
        self._started = int(time.time())

    async def get(self, call: Call[None]) -> TextReply:
        """Return all metrics as text, or in the format of OpenMetrics for a client that accepts it."""
        if not self._allowed:
            raise refused("metrics endpoint", "without `--no-metrics`, or with llama-server's `--metrics`")
        page = self._exposition.page(",".join(call.http.headers.getlist("accept")))
        return TextReply(page.text, headers={"content-type": page.content_type, _STARTED: str(self._started)})


def metrics_endpoints(metrics: MetricsEndpoints) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of `/metrics`."""
    get: BodilessEndpoint[str] = BodilessEndpoint(
        method="GET",
        path="/metrics",
        id="getMetrics",
        summary="Get the metrics for Prometheus.",
        handler=metrics.get,
        answer=str,
        media=("text/plain", "application/openmetrics-text"),
        refusals=NOT_ALLOWED,
    )
    return (get,)
