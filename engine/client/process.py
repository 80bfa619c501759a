"""Child process of the engine: start, messages on its pipes, and end."""

import errno
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Self

import anyio
from anyio.abc import Process

from engine.environment import HUGE_PAGES, without_secrets
from engine.notifier import Notifier
from engine.protocol.codec import Decoder, encode
from engine.protocol.messages import Message, ToEngine
from engine.protocol.pipes import PipeReader, PipeWriter

logger = logging.getLogger(__name__)

_SPINS = "20000"
"""Spins of a thread of GNU OpenMP that waits, before it sleeps: half a millisecond on an EPYC. That is a little longer
than the gateway keeps a core from another thread for a token: one that sleeps meanwhile is woken up late. By default it
takes 15 times as long, in which it keeps its core from other processes, and from the thread that it waits for. Without
spins each wait costs a system call, which takes up to half of the speed."""


CRASHES = {-signal.SIGILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT}
"""Exit codes of a process that executed code that its machine does not support."""


def describe_exit(code: int | None) -> str:
    """Return an exit code as a sentence. Negative codes are signals, as in `subprocess`; None is an unknown one."""
    if code is None:
        return "The engine process cannot be killed."
    if code >= 0:
        return f"The engine process exited with code {code}."
    try:
        name = signal.Signals(-code).name
    except ValueError:  # the real-time signals have no names
        name = f"signal {-code}"
    cause = " The kernel does that where memory runs out." if -code == signal.SIGKILL else ""
    return f"The engine process was killed by {name}.{cause}"


def child_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the child: `own` without secrets, with defaults for the libraries of the child.

    Unused OpenBLAS (of numpy) would start a thread per core.
    """
    defaults = {"OPENBLAS_NUM_THREADS": "1", **HUGE_PAGES}
    if "OMP_WAIT_POLICY" not in own:  # which the number of spins would override
        defaults["GOMP_SPINCOUNT"] = _SPINS
    return {**defaults, **without_secrets(own)}


class EngineProcess:
    """A running child process. One task reads, one task writes; `send` and `kill` may be called from any task."""

    def __init__(self, process: Process, stdin: PipeWriter, stdout: PipeReader) -> None:
        """Wrap a process and the other ends of its standard input and output."""
        self.pid = process.pid
        self._process = process
        self._stdin = stdin
        self._stdout = stdout
        self._decoder = Decoder()
        self._blocked = Notifier()

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        """Start a child that exchanges frames on its pipes and inherits standard error. Shielded from cancellation.

        The child leads its own session, so that Ctrl-C on a terminal reaches only the gateway, which ends the child in
        order.

        Raises:
            OSError: The process cannot be started.
        """
        with anyio.CancelScope(shield=True), ExitStack() as failed, ExitStack() as passed:
            stdin, to_child = os.pipe()
            passed.callback(os.close, stdin)
            writer = PipeWriter(to_child)
            failed.callback(writer.close)
            from_child, stdout = os.pipe()
            passed.callback(os.close, stdout)
            reader = PipeReader(from_child)
            failed.callback(reader.close)
            try:
                process = await anyio.open_process(
                    command,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=None,
                    start_new_session=True,
                    env=child_environment(os.environ),
                )
            except RuntimeError as error:  # no thread can be started, in which Trio starts the process
                raise OSError(errno.EAGAIN, str(error)) from error
            failed.pop_all()
        return cls(process, writer, reader)

    def send(self, message: ToEngine) -> None:
        """Send a message, at once if the pipe has room. It is sent in order, and dropped if the child is dead.

        Raises:
            ValueError: A frame cannot carry the message, as in `encode`.
        """
        frame = encode(message)
        with suppress(BrokenPipeError):
            self._stdin.offer(frame)
        if self._stdin.has_unsent:
            self._blocked.notify()

    async def write(self) -> None:
        """Write what did not fit into the pipe, until cancelled or until the child closes it."""
        with suppress(BrokenPipeError):
            while True:
                await self._stdin.flush()
                await self._blocked.wait()

    async def receive(self) -> list[Message]:
        """Wait for messages and return them; an empty list means the end of the stream.

        Raises:
            ValueError: The child sent bytes that are not a frame.
        """
        while data := await self._stdout.receive():
            if messages := self._decoder.feed(data):
                return messages
        return []

    def kill(self) -> None:
        """Kill the child, if it has not exited."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self, drain_timeout: float, kill_timeout: float) -> int | None:
        """Close the child's stdin, which ends it; kill it after so many seconds. Shielded from cancellation.

        A process that is blocked in a driver survives even a kill. It is abandoned after further seconds.

        Returns the exit code, negative for a signal; None if the process was abandoned.
        """
        with anyio.CancelScope(shield=True):
            self._stdin.close()
            with anyio.move_on_after(drain_timeout):
                await self._drain()
            self.kill()
            with anyio.move_on_after(kill_timeout):
                await self._process.wait()
            self._stdout.close()
            if self._process.returncode is None:
                logger.error("engine process %d cannot be killed", self.pid)
            else:
                await self._process.aclose()
        return self._process.returncode

    async def _drain(self) -> None:
        """Read stdout to its end, so that the child does not block on a full pipe, and wait for the exit."""
        while await self._stdout.receive():
            pass
        await self._process.wait()
