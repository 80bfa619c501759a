"""Estimates of how long a client should wait before it tries again. Times are arguments, in seconds."""

from collections import Counter
from collections.abc import Iterable

from engine.client.mailbox import Mailbox
from engine.info import EngineMetrics
from engine.request import GenerationRequest, Request

_WEIGHT = 0.2
"""Weight of the latest request in an average. About ten requests determine it."""


class QueuePace:
    """Measures how long requests hold their slots, and estimates how long the queue needs."""

    def __init__(self) -> None:
        self._in_slot: float | None = None
        self._embedding: float | None = None

    def record(self, mailbox: Mailbox) -> None:
        """Record a request that has ended.

        One that never left the queue says nothing about the slots, and an embedding without its vectors nothing about
        the time until they come.
        """
        if not isinstance(mailbox.request, GenerationRequest):
            if mailbox.error is None:
                self._embedding = _average(self._embedding, mailbox.ended_at - mailbox.sent_at)
        elif mailbox.started_at is not None:
            self._in_slot = _average(self._in_slot, mailbox.ended_at - mailbox.started_at)

    def seconds(
        self, request: Request, metrics: EngineMetrics | None, oldest: float, clients: Iterable[str] = ()
    ) -> float | None:
        """Return the time until a request like this one would be served, or None if it is unknown.

        Clients take turns in the queue. So the request waits for at most as many requests of each other client as its
        own client has there, and one more.

        Args:
            request: Request that was refused.
            metrics: Latest metrics of the engine.
            oldest: Time since the oldest request in flight was sent. Until one has ended, it is the only measure.
            clients: Client of each generation request that waits.
        """
        if not isinstance(request, GenerationRequest):
            return self._embedding  # it includes the wait in the queue
        if metrics is None or not metrics.slots:
            return None
        held = oldest if self._in_slot is None else self._in_slot
        return held * max(metrics.waiting - _overtaken(request.client, Counter(clients)), 1) / metrics.slots


def _overtaken(client: str, waiting: Counter[str]) -> int:
    """Return the number of waiting requests whose turn comes after that of a new one of a client."""
    turns = waiting[client] + 1
    return sum(max(0, requests - turns) for requests in waiting.values())


def _average(known: float | None, latest: float) -> float:
    return latest if known is None else known + _WEIGHT * (latest - known)


class LoadPace:
    """Measures how long the model takes to load, and estimates when the engine is ready."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._duration: float | None = None

    def begin(self, now: float) -> None:
        """Record the start of loading, which may be in the future."""
        self._began_at = now

    def end(self, now: float) -> None:
        """Record the end of loading."""
        if self._began_at is not None:
            self._duration = now - self._began_at
        self._began_at = None

    def seconds(self, progress: float, now: float) -> float | None:
        """Return the time until the model is loaded, or None if it is unknown.

        Args:
            progress: Loaded share of the model, from 0 to 1.
            now: Current time.
        """
        if self._began_at is None:
            return None
        elapsed = now - self._began_at
        if self._duration is not None:
            return max(self._duration - elapsed, 0.0)
        return elapsed * (1 - progress) / progress if progress else None
