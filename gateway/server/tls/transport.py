"""TLS on a transport, with the transport's guarantees."""

import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable

import anyio.lowlevel

from gateway.middleware import errors
from gateway.server.transport import RECEIVE_SIZE, Transport

logger = logging.getLogger(__name__)

Turn = Callable[[], Awaitable[None]]
"""Waits until the calling task may do work that holds the event loop."""

PIECE = 64 * 1024
"""Bytes that are encrypted at once."""

CAPITALS = range(ord("A"), ord("Z") + 1)
"""First bytes of an HTTP request in plain text. TLS begins with a lower byte."""


class TlsTransport:
    """TLS on one `Transport`, with the same methods. One task receives; any task may send.

    OpenSSL works on buffers in memory and never waits. So every wait is the transport's, with its time limits and its
    detection of hang-ups, and a send is still one system call. The handshake is a part of the first `receive`: it runs
    in the time that the client has for its first request.
    """

    def __init__(self, plain: Transport, context: ssl.SSLContext, turn: Turn = anyio.lowlevel.checkpoint) -> None:
        """Create the server's side of a TLS connection.

        Args:
            plain: Transport of the encrypted bytes.
            context: Certificates and rules of this server.
            turn: Waits for a turn before each step of the handshake, which signs and so takes about a millisecond.
        """
        self._plain = plain
        self._turn = turn
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._begun = False  # bytes have come of a handshake or a record, which is not complete
        self._established = False
        self._peer_closed = False
        self._ended = False  # by this side, or by an error: no more bytes are encrypted or decrypted

    @property
    def closed(self) -> bool:
        """True once this side has closed the connection."""
        return self._plain.closed

    @property
    def has_unsent(self) -> bool:
        """True if the kernel has not accepted all bytes yet."""
        return self._plain.has_unsent

    def prepare(self) -> tuple[str, int] | None:
        """Prepare the socket, and return the local address. See `Transport.prepare`."""
        return self._plain.prepare()

    def has_input(self) -> bool:
        """Return True if bytes have arrived that `receive` has not read."""
        return self._plain.has_input()

    @property
    def has_begun(self) -> bool:
        """True if a part of the handshake, or of a record, has been received."""
        return self._begun

    def peer_has_closed(self) -> bool:
        """Return True if FIN or a reset has come, as the plain transport does."""
        return self._plain.peer_has_closed()

    async def receive(self, turn: Turn = anyio.lowlevel.checkpoint) -> bytes:
        """Wait for bytes, then for the reader's turn, and return the bytes; `b""` is a close_notify or a FIN.

        After `finish`, the bytes are encrypted ones, which only show that the client is still there.

        Raises:
            OSError: The connection broke, or the client broke TLS (`ssl.SSLError`).
            StalledError: The client did not read the server's part of the handshake.
            anyio.ClosedResourceError: This side closed the connection.
        """
        if not (self._established or self._ended):
            await self._handshake()
        if not self._established:
            return await self._drain()
        if self._ended:
            return await self._plain.receive(turn)
        while not (data := self._decrypt()) and not self._peer_closed:
            received = await self._plain.receive(turn)
            if not received:
                return b""
            self._begun = True
            self._incoming.write(received)
        self._begun = False
        return data

    async def _handshake(self) -> None:
        """Complete the handshake, or end the connection. If it is cancelled, the next call continues it."""
        try:
            while not self._advance():
                await self._plain.send(self._outgoing.read())
                received = await self._plain.receive(self._turn)
                if not received:
                    self._ended = True
                    return
                if not self._begun and received[0] in CAPITALS:
                    self._refuse(plain_http_response())
                    return
                self._begun = True
                self._incoming.write(received)
        except ssl.SSLError as error:
            logger.debug("TLS handshake failed: %s", error.reason)
            self._refuse(self._outgoing.read())  # OpenSSL's alert
            return
        self._established, self._begun = True, self._incoming.pending > 0
        await self._plain.send(self._outgoing.read())

    def _advance(self) -> bool:
        """Advance the handshake. Returns True once it is complete, and False if more bytes are needed."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _refuse(self, answer: bytes) -> None:
        """Send `answer` and FIN, without TLS."""
        self._ended = True
        self._plain.offer(answer)
        self._plain.finish()

    async def _drain(self) -> bytes:
        """Read until the client's FIN and return `b""`. A close before it could be a reset that overtakes a refusal."""
        while await self._plain.receive(self._turn):
            pass
        return b""

    def _decrypt(self) -> bytes:
        """Return all bytes that can be decrypted, and notice a close_notify behind them."""
        parts: list[bytes] = []
        try:
            while part := self._tls.read(RECEIVE_SIZE):
                parts.append(part)
        except ssl.SSLWantReadError:
            self._send_answer()
        except ssl.SSLError:
            self._ended = True
            self._plain.offer(self._outgoing.read())  # OpenSSL's alert
            raise
        else:
            self._peer_closed = True
        return b"".join(parts)

    def _send_answer(self) -> None:
        """Send what OpenSSL answers by itself: that it does not negotiate again.

        Raises:
            ssl.SSLError: The client asks for such answers and does not read them, which would fill the memory.
        """
        if self._outgoing.pending:
            if self._plain.has_unsent:
                raise ssl.SSLError("the client negotiates and does not read")
            self._plain.offer(self._outgoing.read())

    async def send(self, data: bytes) -> None:
        """Encrypt `data` and pass it to the kernel. May wait for room; see `Transport.send`.

        Raises:
            StalledError: The write timeout passed.
            OSError: The connection broke, or has ended.
        """
        await self._plain.send(b"" if self._plain.closed else self._encrypt(data))

    def offer(self, data: bytes) -> None:
        """Encrypt `data` and pass it to the kernel without a wait; see `Transport.offer`.

        Raises:
            OSError: The connection broke, or has ended.
        """
        self._plain.offer(self._encrypt(data))

    def _encrypt(self, data: bytes) -> bytes:
        """Return `data` in encrypted form, behind anything that OpenSSL has to say.

        In pieces, because OpenSSL's buffer keeps its largest size as long as the connection is open.
        """
        parts = []
        for start in range(0, len(data), PIECE):
            self._tls.write(data[start : start + PIECE])
            parts.append(self._outgoing.read())
        return b"".join(parts)

    def finish(self) -> None:
        """Send close_notify and FIN. If there are unsent bytes, reset instead."""
        self._end()
        self._plain.finish()

    def abort(self) -> None:
        """Close with a reset, without a close_notify: the client must not take what it got for complete."""
        self._ended = True
        self._plain.abort()

    def close(self) -> None:
        """Close behind a close_notify, and wake tasks in `receive` and `send`."""
        if not self._plain.closed:
            self._end()
            self._plain.close()

    def _end(self) -> None:
        """Send close_notify behind the unsent bytes, if there are any, unless the connection has ended already."""
        if self._established and not self._ended:
            with contextlib.suppress(ssl.SSLError):  # OpenSSL would also read the client's close_notify
                self._tls.unwrap()
            with contextlib.suppress(OSError):  # the client is gone
                self._plain.offer(self._outgoing.read())
        self._ended = True


def plain_http_response() -> bytes:
    """Return the response to a request that came without TLS, in plain text too."""
    response = errors.response_for(errors.PLAIN_HTTP)
    lines = [b"HTTP/1.1 400 ", *(b"%b: %b" % header for header in response.raw_headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body)
