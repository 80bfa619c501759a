"""Sequences of an engine that run, and those that wait: choices of generations, and inputs to embed."""

from engine import EngineMetrics


def running(metrics: EngineMetrics) -> int:
    """Return the number of choices that hold a slot, and of inputs to embed that run."""
    return metrics.held + metrics.embedding_running


def waiting(metrics: EngineMetrics) -> int:
    """Return the number of choices and of inputs to embed that wait."""
    return metrics.waiting + metrics.embedding_waiting - metrics.embedding_running


def load(metrics: EngineMetrics) -> float:
    """Return the sequences that run or wait, as a share of those that can run: 1 if all can, more if some wait."""
    choices = (metrics.held + metrics.waiting) / max(metrics.slots, 1)
    return choices + metrics.embedding_waiting / max(metrics.embedding_places, 1)
