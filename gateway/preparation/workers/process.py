"""The processes as the gateway sees them: the fork server, and a worker with its connection."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio.abc import Process, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from engine import Busy, EngineFault, command_for, without_secrets
from gateway.preparation.codec import error_from
from gateway.preparation.workers import forkserver
from gateway.preparation.workers.forkserver import COMMAND
from gateway.preparation.workers.messages import MAX_HEAD, SIZES, Job, Result, frame
from gateway.preparation.workers.worker import READY

logger = logging.getLogger(__name__)

_END_TIMEOUT = 2.0
"""Seconds in which a fork server must end. It only kills its workers."""
_PART = 1 << 18
"""Bytes of a result that are received at once."""


class WorkerDiedError(EngineFault):
    """A worker ended in the middle of a job, or sent bytes that are not a frame."""

    def __init__(self) -> None:
        super().__init__("The process that prepared the request ended unexpectedly.", code="preparation_failed")


class Worker:
    """One worker process. It runs one job at a time."""

    def __init__(self, slot: int, connection: socket.socket, stream: SocketStream) -> None:
        """Take over the connection of a worker."""
        self.slot = slot
        """Place of the worker in the pool."""
        self.gone = anyio.Event()
        """Set once the worker must not be used any more. It is then replaced, and killed if it still runs."""
        self._connection = connection
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self._pid = 0

    @property
    def lost(self) -> bool:
        """True if an idle worker has ended, or has sent bytes that no job asked for."""
        try:
            self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return bool(self._received.buffer)
        except OSError:
            return True
        return True

    async def wait_until_ready(self) -> bool:
        """Wait for the worker's start. Returns False if it ended before."""
        try:
            (self._pid,) = READY.unpack(await self._received.receive_exactly(READY.size))
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            return False
        return True

    async def call(self, job: Job, payload: bytes) -> bytes:
        """Run a job and return its result. The worker is `gone` afterwards unless it can run another.

        Raises:
            Busy: the worker did not get the CPU time of the job.
            EngineError: the job failed, or the worker died.
            TimeoutError: the job used up its CPU time.
        """
        try:
            result, output = await self._answer(job, payload)
        except BaseException:
            self.gone.set()
            raise
        if result.spent:
            self.gone.set()
        if result.trace:
            logger.error("unexpected failure of a job\n%s", result.trace)
        if result.failure is not None:
            raise error_from(result.failure)
        return output

    async def _answer(self, job: Job, payload: bytes) -> tuple[Result, bytes]:
        before = self._cpu_time()
        try:
            with anyio.fail_after(job.limits.wait):
                return await self._exchange(job, payload)
        except TimeoutError as error:
            raise Busy("The request could not be prepared in time.", code="preparation_timeout") from error
        except WorkerDiedError as error:
            if self._cpu_time() - before < job.limits.seconds:
                raise
            raise TimeoutError from error

    def _cpu_time(self) -> float:
        """Return the CPU time of the process in seconds, also after its end, until it is replaced; 0 if it is unknown.

        The clock's id is that of `clock_getcpuclockid`, for the time that the timer of the limit measures.
        """
        if sys.platform != "linux":
            return 0.0
        try:
            return time.clock_gettime(~self._pid << 3)
        except OSError:  # the fork server has ended
            return 0.0

    async def _exchange(self, job: Job, payload: bytes) -> tuple[Result, bytes]:
        try:
            await self._stream.send(frame(msgspec.msgpack.encode(job), payload))
            await self._stream.send(payload)
            head, size = SIZES.unpack(await self._received.receive_exactly(SIZES.size))
            if head > MAX_HEAD or size > job.limits.output:
                raise WorkerDiedError
            result = msgspec.msgpack.decode(await self._received.receive_exactly(head), type=Result)
            return result, await self._receive(size)
        except (
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            msgspec.DecodeError,
        ) as error:
            raise WorkerDiedError from error

    async def _receive(self, size: int) -> bytes:
        """Return the next bytes. For a moment they are in memory twice; with `receive_exactly` it would be thrice."""
        parts = []
        while size:
            parts.append(part := await self._received.receive(min(size, _PART)))
            size -= len(part)
        return b"".join(parts)


class ForkServer:
    """A running fork server."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        """Take over a process and the socket that is its standard input."""
        self._process = process
        self._control = control

    @asynccontextmanager
    async def replace(self, slot: int) -> AsyncIterator[Worker]:
        """Replace the worker of a slot, if it has one, and close the connection at the end.

        The worker is not ready if the fork server has ended.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            # Not `UNIXSocketStream`, which on asyncio reports a defect if it is cancelled just when bytes arrive.
            async with await SocketStream.from_socket(ours) as stream:
                with suppress(OSError):
                    socket.send_fds(self._control, [COMMAND.pack(slot)], [theirs.fileno()])
                theirs.close()
                yield Worker(slot, ours, stream)

    async def exited(self) -> int:
        """Wait until the process has exited, and return its exit code."""
        return await self._process.wait()

    async def end(self) -> None:
        """End the process and its workers. Shielded from cancellation."""
        with anyio.CancelScope(shield=True):
            self._control.close()
            with anyio.move_on_after(_END_TIMEOUT):
                await self._process.wait()
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.aclose()


@asynccontextmanager
async def open_fork_server(modules: Sequence[str]) -> AsyncIterator[ForkServer]:
    """Start a fork server that imports `modules`, and end it with its workers.

    It leads its own session, so that Ctrl-C on a terminal reaches only the gateway.

    Raises:
        OSError: the process cannot be started.
    """
    control, theirs = socket.socketpair()
    control.setblocking(False)
    with control:
        with theirs, anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [*command_for(forkserver.__name__), *modules],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=None,
                start_new_session=True,
                env=without_secrets(os.environ),
            )
        server = ForkServer(process, control)
        try:
            yield server
        finally:
            await server.end()
