"""Requests on a replica by the ingresses that have sent them, of which some may die."""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.to_thread

from gateway.cluster.exchange import Exchange

logger = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two looks at the ingresses that have sent requests."""


class SentRequests:
    """Leaves the requests of an ingress that has died. Their clients are gone, and Ray lets such calls go on."""

    def __init__(self, lives: Callable[[str], bool]) -> None:
        """Create an empty set.

        Args:
            lives: returns whether an ingress lives. It is called in a thread.
        """
        self._lives = lives
        self._open: defaultdict[str, set[Exchange]] = defaultdict(set)

    @contextmanager
    def sent_by(self, ingress: str, exchange: Exchange) -> Iterator[None]:
        """Count a request as one of an ingress, inside the context."""
        self._open[ingress].add(exchange)
        try:
            yield
        finally:
            self._open[ingress].discard(exchange)
            if not self._open[ingress]:
                del self._open[ingress]

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look again and again inside the context."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            yield
            tasks.cancel_scope.cancel()

    async def look(self) -> None:
        """Leave the requests of all ingresses that have died."""
        for ingress in tuple(self._open):
            if not await anyio.to_thread.run_sync(self._lives, ingress):
                for exchange in self._open.get(ingress, ()):
                    exchange.leave()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(PERIOD)
            try:
                await self.look()
            except Exception:  # as where no thread can be started; the replica goes on
                logger.exception("the ingresses that have sent requests cannot be looked at")
