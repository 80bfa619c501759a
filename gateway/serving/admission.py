"""Admission of a generation request: its wait in the engine's queue."""

from collections.abc import Callable
from dataclasses import dataclass

import anyio

from engine import Busy, Generation
from gateway.middleware.caller import Cause, Closing


@dataclass(slots=True)
class Admission:
    """A request that the engine has accepted, until it leaves the queue."""

    generation: Generation
    """The request in the engine."""
    closing: Closing
    """Receives the reason if the wait takes too long."""
    deadline: float
    """Time by the event loop's clock at which the wait for a slot ends."""
    queue_seconds: Callable[[], float | None]
    """Returns the time that the queue needs, for a client that tries again."""
    waits: bool = True
    """True until the request has left the queue."""

    async def granted(self) -> Generation:
        """Wait until the request leaves the queue, and return it. Can be cancelled and repeated.

        Raises:
            Busy: the deadline has passed.
        """
        if self.waits:
            with anyio.CancelScope(deadline=self.deadline) as wait:
                await self.generation.started()
            if wait.cancelled_caught:
                message = "The request waited in the queue for longer than this server allows."
                self.closing.reason = self.closing.reason or "waited in the queue for too long"
                self.closing.cause = self.closing.cause or Cause.QUEUE_TIMEOUT
                raise Busy(message, code="queue_timeout", retry_after=self.queue_seconds())
            self.waits = False
        return self.generation
