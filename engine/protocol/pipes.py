"""The gateway's ends of the pipes. The usual case is one system call and no task switch."""

import os

import anyio

_READ = 1 << 16


class PipeReader:
    """The reading end of a pipe. For one task."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    async def receive(self) -> bytes:
        """Wait for bytes and return them; `b""` is the end. Other tasks run before each read."""
        while True:
            await anyio.wait_readable(self._fd)
            try:
                return os.read(self._fd, _READ)
            except BlockingIOError:
                continue

    def close(self) -> None:
        """Close this end."""
        anyio.notify_closing(self._fd)
        os.close(self._fd)


class PipeWriter:
    """The writing end of a pipe. `offer` may be called from any task; one task runs `flush`."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._unsent = bytearray()
        self._open = True

    @property
    def has_unsent(self) -> bool:
        """True if the kernel has not accepted all bytes yet."""
        return bool(self._unsent)

    def offer(self, data: bytes) -> None:
        """Pass bytes to the kernel without a wait, behind those that `flush` still has to send.

        Raises:
            BrokenPipeError: The other end is closed.
        """
        taken = 0 if self._unsent else self._write(data)
        if taken < len(data):
            self._unsent += memoryview(data)[taken:]

    async def flush(self) -> None:
        """Wait until the kernel has accepted all bytes.

        Raises:
            BrokenPipeError: The other end is closed.
        """
        while self._unsent:
            await anyio.wait_writable(self._fd)
            del self._unsent[: self._write(self._unsent)]

    def close(self) -> None:
        """Close this end, and drop the bytes that the kernel has not accepted. A second call does nothing."""
        if self._open:
            self._open = False
            anyio.notify_closing(self._fd)
            os.close(self._fd)

    def _write(self, data: bytes | bytearray) -> int:
        if not self._open:
            raise BrokenPipeError
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
