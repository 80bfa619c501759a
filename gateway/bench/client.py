"""Client that sends one request at a time over a persistent connection."""

from types import TracebackType
from typing import Self

import anyio

from gateway.bench.connect import connect, describe
from gateway.bench.connection import Connection, Receiver, clock
from gateway.bench.exchange import Exchange
from gateway.bench.outcome import Failure
from gateway.bench.target import Target


class Client:
    """Client of the server under test. It connects at first, after a failure, and after the server has closed."""

    def __init__(self, target: Target, receiver: Receiver, answer_timeout: float) -> None:
        """Set the target and the timeout; connects at the first request.

        Args:
            target: the server under test.
            receiver: reads the connection.
            answer_timeout: maximum time of an answer, in seconds.
        """
        self._target = target
        self._receiver = receiver
        self._timeout = answer_timeout
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    async def send(self, request: bytes, exchange: Exchange) -> float:
        """Send a request, wait until the exchange is over, and return the time of sending.

        Failures are recorded in the exchange.
        """
        if self._connection is not None and not self._connection.idle:
            self._disconnect()
        begun = clock()
        with anyio.move_on_after(self._timeout) as limit:
            try:
                if self._connection is None:
                    self._connection = Connection(await connect(self._target), self._receiver)
                begun = clock()
                await self._connection.send(request, exchange)
            except OSError as error:
                exchange.fail(Failure("connection", describe(error)), clock())
        if limit.cancelled_caught:
            exchange.fail(Failure("timeout", f"not answered within {self._timeout:g} s"), clock())
        if not exchange.reusable:
            self._disconnect()
        return begun

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
