"""Measurements of an engine that need no answer of its process."""

from dataclasses import dataclass

from engine.client.histogram import Histogram
from engine.events import EngineMetrics


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
