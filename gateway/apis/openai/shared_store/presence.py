"""Lease of a gateway: what it runs and holds in the shared store ends with it if it dies."""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from gateway.apis.openai.shared_store.entries import lock
from gateway.apis.openai.shared_store.orphans import fail_orphans
from gateway.apis.openai.shared_store.storage import Storage
from gateway.apis.openai.stores import Bounds
from gateway.middleware.errors import RefusedError
from gateway.storage.database import Execute

logger = logging.getLogger(__name__)

LEASE = 15.0
"""Seconds after which a gateway that was not heard of counts as dead."""
POLL_INTERVAL = 0.5
"""Seconds between two looks for cancels by other gateways, while responses run in the background."""
RENEW = """INSERT INTO stored_gateways VALUES (?, clock_timestamp() + make_interval(secs => ?))
    ON CONFLICT (id) DO UPDATE SET expires_at = EXCLUDED.expires_at"""
TURNS = "SELECT turn FROM stored_conversations WHERE turn_gateway = ?"
RELEASE = """UPDATE stored_conversations SET turn = NULL, turn_gateway = NULL
    WHERE turn_gateway = ? AND turn = ANY(?)"""
OWN = "SELECT id, cancelled FROM stored_running WHERE gateway = ?"
LEAVE = "DELETE FROM stored_gateways WHERE id = ?"


def same_request(turn: str, other: str) -> bool:
    """Return True for the names of two turns that one request has begun, on one gateway or on two."""
    request = turn.rpartition("-")[2]
    return turn == other or bool(request and request == other.rpartition("-")[2])


@dataclass(slots=True)
class _Announced:
    """A background response of this gateway."""

    cancel: Callable[[], None]
    """Cancels it."""
    visible: bool = False
    """True once it is in the database."""


class Presence:
    """Keeps the lease of this gateway, and does what others ask of its background responses.

    A response that was removed or cancelled by another gateway is cancelled here. One whose gateway is dead becomes a
    failed one.
    """

    def __init__(self, storage: Storage, bounds: Bounds, lease: float = LEASE) -> None:
        """Create a lease that `open` takes.

        Args:
            storage: the database, for this object alone: a lease must not wait for requests.
            bounds: limits of the store.
            lease: seconds after which this gateway counts as dead.
        """
        self.gateway = secrets.token_hex(8)
        """Name of this gateway in the database."""
        self._storage = storage
        self._bounds = bounds
        self._lease = lease
        self._announced: dict[bytes, _Announced] = {}
        self._turns: set[str] = set()
        self._wake = anyio.Event()

    def renew(self, execute: Execute) -> None:
        """Renew the lease, in the same transaction in which something is begun under it."""
        execute(RENEW, (self.gateway, self._lease))

    def announce(self, response: bytes, cancel: Callable[[], None]) -> None:
        """Expect a background response in the database."""
        self._announced[response] = _Announced(cancel)
        self._wake.set()

    def shown(self, response: bytes) -> None:
        """Note that a background response is in the database."""
        if response in self._announced:
            self._announced[response].visible = True

    def forget(self, response: bytes) -> None:
        """Expect a background response no longer."""
        self._announced.pop(response, None)

    def new_turn(self, request: str) -> str:
        """Return the name of a new turn of this gateway for a request. It lasts until `forget_turn` or `abandon`."""
        turn = f"{self.gateway}-{secrets.token_hex(8)}-{request}"
        self._turns.add(turn)
        return turn

    def forget_turn(self, turn: str) -> None:
        """Note that a turn is over."""
        self._turns.discard(turn)

    def abandon(self, turn: str) -> None:
        """End a turn, without any change of its conversation. The database knows soon."""
        self._turns.discard(turn)
        self._wake.set()

    def is_over(self, turn: str) -> bool:
        """Return True for a turn of this gateway that is over, even if the database does not know yet."""
        return turn.startswith(self.gateway) and turn not in self._turns

    async def released(self) -> None:
        """Wait until the database knows which turns of this gateway are over, or cannot be used."""
        with suppress(RefusedError):  # the next beat tries again
            await self._storage.run(self._release)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the lease inside the context. Leaving it gives the lease up: others need not wait for its end."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run)
                yield
                tasks.cancel_scope.cancel()
        finally:
            try:
                await self._storage.run(self._leave)
            except RefusedError:
                logger.warning("stored responses and conversations stay locked for %g seconds", self._lease)
            await self._storage.close()

    async def _run(self) -> None:
        while True:
            with suppress(RefusedError):  # it is reported
                await self._beat()
            with anyio.move_on_after(POLL_INTERVAL if self._announced else self._lease / 3):
                await self._wake.wait()
                self._wake = anyio.Event()

    async def _beat(self) -> None:
        visible = {name for name, announced in self._announced.items() if announced.visible}

        def renew(execute: Execute) -> dict[bytes, bool]:
            self.renew(execute)
            return dict(execute(OWN, (self.gateway,)))

        await self.released()
        found = await self._storage.run(renew)
        self._cancel({name for name, cancelled in found.items() if cancelled} | (visible - found.keys()))
        left_over = found.keys() - self._announced.keys()
        await self._storage.run(lambda execute: fail_orphans(execute, self.gateway, left_over, self._bounds))

    def _cancel(self, responses: Collection[bytes]) -> None:
        for response in responses:
            if (announced := self._announced.get(response)) is not None:
                announced.cancel()

    def _release(self, execute: Execute) -> None:
        """Release the conversations whose turns are over, also if their beginning was thought to have failed."""
        turns = [turn for (turn,) in execute(TURNS, (self.gateway,))]
        if over := [turn for turn in turns if self.is_over(turn)]:
            lock(execute)
            execute(RELEASE, (self.gateway, over))

    def _leave(self, execute: Execute) -> None:
        """Give up the lease. The turns of a gateway without one are over."""
        execute(LEAVE, (self.gateway,))
