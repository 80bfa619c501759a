"""Budget for the memory of request bodies, over all connections."""

import math

import anyio

from engine.notifier import Notifier

FREE = 64 * 1024
"""Bytes of each body that need no budget, so that small requests never wait for large ones."""


class BodyBudget:
    """Limit on the bytes of all bodies in memory. A body that exceeds it waits to be read, in the order of arrival.

    The oldest unfinished body may exceed the limit by one body's size, so that bodies that wait for each other's
    memory cannot block all of them.
    """

    def __init__(self, limit: float = math.inf, largest_body: int = 0) -> None:
        """Create a budget.

        Args:
            limit: Bytes of all bodies, without the first `FREE` bytes of each.
            largest_body: Maximum bytes of one body.
        """
        self.used = 0
        """Bytes that the bodies have taken."""
        self._limit = limit
        self._reserve = largest_body
        self._unfinished: dict[Body, int] = {}  # bytes for which each waits, the oldest body first
        self._granted = Notifier()

    async def take(self, body: "Body", size: int) -> None:
        """Wait for `size` bytes. A wait that is cancelled delays no other."""
        self._unfinished[body] = size
        self._grant()
        try:
            while self._unfinished[body]:
                await self._granted.wait()
        except anyio.get_cancelled_exc_class():
            self._unfinished[body] = 0
            self._grant()
            raise

    def finish(self, body: "Body") -> None:
        """Note that a body needs no more bytes."""
        if self._unfinished.pop(body, None) is not None:
            self._grant()

    def give_back(self, size: int) -> None:
        """Return bytes of a body that is no longer in memory."""
        self.used -= size
        self._grant()

    def _grant(self) -> None:
        limit = self._limit + self._reserve
        for body, size in self._unfinished.items():
            if self.used + size > limit:
                break
            if size:
                self.used += size
                body.charged += size
                self._unfinished[body] = 0
                self._granted.notify()
            limit = self._limit


class Body:
    """Body of one request, and its part of the budget."""

    def __init__(self, budget: BodyBudget | None = None) -> None:
        self.data = b""
        """Bytes of the whole body, until `take` or `release`."""
        self.charged = 0
        """Bytes taken from the budget."""
        self.size = 0
        """Bytes that have arrived."""
        self._budget = budget or BodyBudget()

    def store(self, data: bytes) -> None:
        """Store a whole body of at most `FREE` bytes."""
        self.data = data
        self.size = len(data)

    async def grow(self, size: int) -> None:
        """Wait until the budget has room for `size` more bytes."""
        self.size += size
        missing = self.size - FREE - self.charged
        if missing > 0:
            await self._budget.take(self, missing)

    def complete(self, data: bytes) -> None:
        """Store the whole body."""
        self.data = data
        self._budget.finish(self)

    def take(self) -> bytes:
        """Return the bytes, and keep them no longer. Their part of the budget stays taken until `release`."""
        data, self.data = self.data, b""
        return data

    def release(self) -> None:
        """Drop the bytes and give their part of the budget back."""
        self.data = b""
        self._budget.finish(self)
        charged, self.charged = self.charged, 0
        if charged:
            self._budget.give_back(charged)
