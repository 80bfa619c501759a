"""Non-blocking socket that sends at once if the kernel has room, and otherwise waits for a bounded time."""

import contextlib
import select
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import anyio.lowlevel

from gateway.middleware.patience import Clock, Patience, PatienceError

RECEIVE_SIZE = 64 * 1024
SENT_IN_TIME = 64 * 1024
"""Bytes that the kernel must accept within the write timeout, so that a large send has more time than a small one."""
SENDS_PER_YIELD = 16
"""Number of sends without a wait, after which the task yields to others."""
RESET_ON_CLOSE = struct.pack("ii", 1, 0)

# A host that vanished is detected after 15 + 3 * 5 s of silence, or 20 s after a byte that it does not acknowledge.
TCP_OPTIONS = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPALIVE": 15,  # the same on macOS
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 20_000,
}


class StalledError(Exception):
    """The peer did not read enough within the write timeout."""


class Transport:
    """Owner of one connected stream socket. One task receives; any task may send.

    Most sends are one system call and no task switch: on Trio a lock, a cancel scope and two checkpoints around
    each send cost more than the send itself.
    """

    def __init__(self, sock: socket.socket, write_timeout: float, clock: Clock = anyio.current_time) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._write_timeout = write_timeout
        self._clock = clock
        self._unsent = bytearray()
        self._flushed = 0  # bytes that were unsent before
        self._flushing = anyio.Lock(fast_acquire=True)
        self._sends = 0
        self.closed = False

    @property
    def has_unsent(self) -> bool:
        """True if the kernel has not accepted all bytes yet."""
        return bool(self._unsent)

    def prepare(self) -> tuple[str, int] | None:
        """Set TCP options, most of them to detect a vanished peer, as far as the system has them.

        Returns:
            The local address, or None if it is unknown or not an IP address.
        """
        if self._sock.family not in {socket.AF_INET, socket.AF_INET6}:
            return None
        with contextlib.suppress(OSError):  # the peer is gone already; the first read reports it
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in TCP_OPTIONS.items():
                if hasattr(socket, name):
                    self._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            host, port, *_ = self._sock.getsockname()
            return host, port
        return None

    async def receive(self, turn: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint) -> bytes:
        """Wait for bytes, then for the reader's turn, and return the bytes; `b""` is the peer's FIN.

        Raises:
            OSError: The connection broke (in most cases a `ConnectionError`).
            anyio.ClosedResourceError: This side closed the connection.
        """
        while not self.closed:
            await anyio.wait_readable(self._sock)
            await turn()
            with contextlib.suppress(BlockingIOError):
                return self._read()
        raise anyio.ClosedResourceError

    def _read(self) -> bytes:
        if self.closed:
            raise anyio.ClosedResourceError
        return self._sock.recv(RECEIVE_SIZE)

    @property
    def has_begun(self) -> bool:
        """True if bytes have been received that `receive` has not returned yet; never without TLS."""
        return False

    def has_input(self) -> bool:
        """Return True if bytes have arrived that `receive` has not returned."""
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def peer_has_closed(self) -> bool:
        """Return True if FIN or a reset has come, even behind bytes that `receive` has not returned.

        Linux reports it: elsewhere the answer is False.
        """
        if sys.platform != "linux":
            return False
        poll = select.poll()
        poll.register(self._sock, select.POLLRDHUP)
        return bool(poll.poll(0))

    async def send(self, data: bytes) -> None:
        """Pass `data` to the kernel, behind the unsent bytes of earlier sends. May wait for room.

        If it is cancelled, the bytes that the kernel has not accepted are sent first by the next send, so that the
        data stays complete and in order. On a closed transport it only yields, so that a sender that ignores the
        hang-up can be cancelled and does not spin.

        Raises:
            StalledError: The write timeout passed.
            OSError: The connection broke.
        """
        if self.closed:
            await anyio.lowlevel.checkpoint()
            return
        self.offer(data)
        if self._unsent:
            await self._flush()
        else:
            await self._yield_now_and_then()

    def offer(self, data: bytes) -> None:
        """Pass `data` to the kernel without a wait. The bytes that it does not accept are sent by the next send.

        Raises:
            OSError: The connection broke.
        """
        taken = 0 if self._unsent else self._pass_on(data)
        self._unsent += data[taken:]

    def _pass_on(self, data: bytes | bytearray) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    async def _flush(self) -> None:
        try:
            with contextlib.suppress(anyio.ClosedResourceError):
                while self._unsent and not self.closed:
                    goal = self._flushed + min(len(self._unsent), SENT_IN_TIME)
                    await Patience(self._write_timeout, self._clock).wait(partial(self._flush_up_to, goal))
        except PatienceError as error:
            raise StalledError from error

    async def _flush_up_to(self, goal: int) -> None:
        async with self._flushing:
            while self._flushed < goal and not self.closed:
                await anyio.wait_writable(self._sock)
                taken = self._pass_on(self._unsent)
                del self._unsent[:taken]
                self._flushed += taken

    async def _yield_now_and_then(self) -> None:
        self._sends += 1
        if self._sends % SENDS_PER_YIELD == 0:
            await anyio.lowlevel.checkpoint()

    def finish(self) -> None:
        """Send FIN. If there are unsent bytes, reset instead, because FIN would look like a clean end."""
        if self._unsent:
            self.abort()
        elif not self.closed:
            with contextlib.suppress(OSError):  # the peer closed first
                self._sock.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """Close with a reset: the kernel discards the bytes that it has not delivered."""
        if not self.closed:
            with contextlib.suppress(OSError):  # some systems refuse the option on a socket that is already broken
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.close()

    def close(self) -> None:
        """Close, and wake tasks in `receive` and `send`. Bytes that the kernel accepted are still delivered."""
        if not self.closed:
            self.closed = True
            anyio.notify_closing(self._sock)
            self._sock.close()
