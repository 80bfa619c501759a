"""Connection of one client: its reader, its limits, the requests that run on it."""

import logging
import math
import ssl

import anyio
from starlette.types import ASGIApp

from gateway.middleware.patience import STALLED, PatienceError
from gateway.server.hypercorn.context import ServerContext
from gateway.server.hypercorn.http1 import MALFORMED, Http1
from gateway.server.hypercorn.requests import Requests
from gateway.server.hypercorn.wire import Address
from gateway.server.tls.transport import TlsTransport
from gateway.server.transport import StalledError, Transport

logger = logging.getLogger(__name__)


class Connection:
    """Connection that is read until the client or the server ends it. A failure ends only this connection.

    The reader never stops reading, because only a read detects a hang-up. FIN counts as a hang-up: a client that has
    only finished sending looks the same as one that is gone.
    """

    def __init__(
        self, app: ASGIApp, context: ServerContext, transport: Transport | TlsTransport, client: Address
    ) -> None:
        self.client = client
        """Address of the client."""
        self.server: Address | None = None
        """Address of the server; unset until the connection runs, or if it is unknown."""
        self.secure = isinstance(transport, TlsTransport)
        """True if the connection is encrypted."""
        self.reason = ""
        """Side that ended the connection, and the reason. Empty while it is open or if the response was complete."""
        self._app = app
        self._context = context
        self._limits = context.limits
        self._clock = context.clock
        self._transport = transport
        self._read_scope = anyio.CancelScope()  # limits the reader's wait for the client
        self._read_until = math.inf
        self._idle = True
        self._tasks = anyio.create_task_group()
        self._requests = Requests(self._tasks, self, context.limits)
        self._http: Http1 | None = None  # unset until the connection runs

    async def run(self) -> None:
        """Serve the client. Returns once the whole connection is released, and raises only cancellation."""
        try:
            async with self._tasks:
                self.server = self._transport.prepare()
                self._http = Http1(self._app, self._context, self._requests, self)
                await self._serve(self._http)
        except* Exception:
            logger.exception("connection failed")
        finally:
            self._transport.close()

    async def _serve(self, http: Http1) -> None:
        self.set_idle(True)
        reason = await self._read_to_the_end(http)
        self.reason = self.reason or reason
        self._transport.close()
        await http.disconnected()

    async def _read_to_the_end(self, http: Http1) -> str:
        while True:
            try:
                data = await self._receive(http)
            except PatienceError:
                return "client was silent for too long"
            except StalledError:
                return STALLED
            except OSError as error:
                return disconnect_reason(error)
            except anyio.ClosedResourceError:
                return "the server closed the connection"
            if not data:
                return "client closed the connection"
            await http.received(data)

    async def _receive(self, http: Http1) -> bytes:
        """Wait for bytes, or raise `PatienceError`. A timeout during a stall of the event loop is repeated."""
        while (left := self._read_until - self._clock()) > 0:
            with anyio.CancelScope(deadline=anyio.current_time() + left) as self._read_scope:
                return await self._transport.receive(http.turn)
        raise PatienceError

    async def send(self, data: bytes) -> None:
        """Send bytes to the client, and close with a reset if that fails. May wait for up to the write timeout."""
        try:
            await self._transport.send(data)
        except StalledError:
            self.abort(STALLED)
        except OSError as error:
            self.abort(disconnect_reason(error))

    @property
    def has_taken_all(self) -> bool:
        """True if the connection is open, and the kernel has all bytes that were sent."""
        return not (self._transport.closed or self._transport.has_unsent)

    def offer(self, data: bytes) -> None:
        """Send bytes without a wait, and close with a reset if that fails. A task sends what the kernel leaves."""
        try:
            self._transport.offer(data)
        except OSError as error:
            self.abort(disconnect_reason(error))
        else:
            if self._transport.has_unsent:
                self._tasks.start_soon(self.send, b"")

    def set_idle(self, idle: bool) -> None:
        """Mark the connection as idle or busy. An idle one has a limited time to become busy again."""
        self._idle = idle
        self._context.places.set_idle(self, idle)
        time = self._limits.linger if self._context.terminated.is_set() else self._limits.keep_alive_timeout
        self._set_read_timeout(time if idle else math.inf)

    def finish(self, reason: str) -> None:
        """Send FIN and continue to read for `linger`, so that a client still sending gets the response and no reset."""
        self.reason = self.reason or reason
        self._transport.finish()
        self._context.places.set_idle(self, True)
        self._set_read_timeout(self._limits.linger)

    def _set_read_timeout(self, seconds: float) -> None:
        self._read_until = self._clock() + seconds
        self._read_scope.deadline = anyio.current_time() + seconds

    def abort(self, reason: str) -> None:
        """Close with a reset. This wakes the reader, which sends a disconnect to the running request."""
        self.reason = self.reason or reason
        self._transport.abort()

    def has_hung_up(self) -> bool:
        """Return True if the client has hung up behind unread bytes. The connection is closed then."""
        if not self._transport.closed and self._transport.peer_has_closed():
            self.reason = self.reason or "client closed the connection"
            self._transport.close()
        return self._transport.closed

    def close_idle(self) -> bool:
        """Close the idle connection to make room for another one, unless bytes wait to be read.

        The begin of a head that has been read does not count: slow clients would keep the others out.
        """
        if self._transport.has_input():
            return False
        self.reason = self.reason or "the server needed room for another client"
        self._transport.close()
        return True

    def drain(self) -> None:
        """Close the connection if it is idle: the server accepts no more. A request that has begun to arrive may go on.

        Its head must be complete within `linger`.
        """
        if not self._idle:
            return
        if self._has_begun():
            self.set_idle(True)
        else:
            self._transport.close()

    def _has_begun(self) -> bool:
        """Return True if a part of a request, or of the handshake before it, has arrived."""
        transport = self._transport
        return transport.has_input() or transport.has_begun or (self._http is not None and self._http.has_begun)

    def cancel_requests(self) -> None:
        """Ask the running request to end soon."""
        self._requests.cancel_all()


def disconnect_reason(error: OSError) -> str:
    """Return the reason for a broken connection: bytes that are not TLS, a peer that the kernel gave up, or a reset."""
    if isinstance(error, ssl.SSLError):
        return MALFORMED
    return "client vanished" if isinstance(error, TimeoutError) else "client reset the connection"
