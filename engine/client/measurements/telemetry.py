"""Measurements of an engine that need no answer of its process, over all its processes so far."""

from dataclasses import dataclass

from engine.client.measurements.histogram import STEP_TOKENS, TOKEN_GAPS, Histogram
from engine.info import EngineMetrics

_GAUGES = (
    *("slots", "free", "held", "waiting", "active_tokens", "cached_tokens", "step_seconds"),
    *("stored_tokens", "embedding_waiting", "embedding_running", "embedding_places", "adapter_change_seconds"),
)


class Totals:
    """Adds the counters of each process to those of the processes before it. Gauges are those of the latest process."""

    def __init__(self) -> None:
        self.step_tokens = Histogram(STEP_TOKENS)
        """Numbers of computed tokens of the steps."""
        self._before = EngineMetrics()
        self._latest = EngineMetrics()
        self._computed = 0

    def record(self, metrics: EngineMetrics) -> None:
        """Record metrics of the process, which sends them in their order."""
        self._latest = metrics
        computed = metrics.prompt_tokens + metrics.rows_decoded + metrics.drafted + metrics.embedding_tokens
        if computed > self._computed:
            self.step_tokens.add(computed - self._computed)
        self._computed = computed

    def end_process(self) -> None:
        """Keep the counters of the process, which has ended."""
        self._before = self.metrics().without(_GAUGES)
        self._latest, self._computed = EngineMetrics(), 0

    def metrics(self) -> EngineMetrics:
        """Return the latest metrics, with the counters of all processes. Gauges are 0 while there is no process."""
        return self._before + self._latest


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Latest measurements of an engine, over all its processes so far."""

    metrics: EngineMetrics
    """Latest metrics, with the counters of all processes. Gauges are 0 while there is no process."""
    token_gaps: Histogram
    """Times between the tokens of each choice, as they arrived in this process, in seconds."""
    step_tokens: Histogram
    """Numbers of computed tokens of the steps."""
    waiting: int
    """Number of requests that wait for the next process."""
    restarts: int = 0
    """Number of processes that replaced another one."""

    def __add__(self, other: "Telemetry") -> "Telemetry":
        """Return the sum of each value, of a model's engine and of those before it."""
        return Telemetry(
            self.metrics + other.metrics,
            self.token_gaps + other.token_gaps,
            self.step_tokens + other.step_tokens,
            self.waiting + other.waiting,
            self.restarts + other.restarts,
        )

    @classmethod
    def none(cls) -> "Telemetry":
        """Return the measurements of an engine that has not begun."""
        return cls(EngineMetrics(), Histogram(TOKEN_GAPS), Histogram(STEP_TOKENS), 0)
