"""A forked process, with the interface of anyio's."""

import os
import signal
import socket
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from tests.prefork.server import REPORT


class PipeWriter(ByteSendStream):
    """The writing end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(_open(self._descriptor), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._descriptor = _close(self._descriptor)


class PipeReader(ByteReceiveStream):
    """The reading end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = os.read(_open(self._descriptor), max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._descriptor)
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    async def aclose(self) -> None:
        self._descriptor = _close(self._descriptor)


def _open(descriptor: int) -> int:
    if descriptor < 0:
        raise anyio.ClosedResourceError
    return descriptor


def _close(descriptor: int) -> int:
    if descriptor >= 0:
        anyio.notify_closing(descriptor)
        os.close(descriptor)
    return -1


class ForkedProcess(Process):
    """A child of a fork server."""

    def __init__(self, channel: socket.socket, stdin: PipeWriter | None, stdout: PipeReader | None) -> None:
        """Wrap the channel on which the fork server reports, and the other ends of the child's pipes."""
        self._channel = channel
        self._stdin = stdin
        self._stdout = stdout
        self._pid = self._report()
        self._returncode: int | None = None
        self._turn = anyio.Lock()
        channel.setblocking(False)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        if self._returncode is None:
            with suppress(BlockingIOError):
                self._returncode = self._report()
        return self._returncode

    @property
    def stdin(self) -> ByteSendStream | None:
        return self._stdin

    @property
    def stdout(self) -> ByteReceiveStream | None:
        return self._stdout

    @property
    def stderr(self) -> None:
        return None

    async def wait(self) -> int:
        async with self._turn:
            while (code := self.returncode) is None:
                await anyio.wait_readable(self._channel)
        return code

    def send_signal(self, signal: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self._pid, signal)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def aclose(self) -> None:
        for stream in (self._stdin, self._stdout):
            if stream is not None:
                await stream.aclose()
        await self.wait()
        self._channel.close()

    def _report(self) -> int:
        (number,) = REPORT.unpack(self._channel.recv(REPORT.size))
        return int(number)
