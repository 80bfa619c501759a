"""Child process of the engine: start, messages on its pipes, and end."""

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from engine.client.notifier import Notifier
from engine.environment import without_secrets
from engine.protocol.codec import Decoder, encode
from engine.protocol.messages import Message, ToEngine

logger = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[2]
_SPINS = "10000"
"""Spins of a thread of GNU OpenMP that waits, before it sleeps: some tenths of a millisecond. By default it takes ten
times as long, in which it keeps its core from other processes, and from the thread that it waits for. Without spins
each wait costs a system call, which takes up to half of the speed."""


def command_for(module: str) -> list[str]:
    """Return the command that runs `main()` of a module of this installation.

    `-P` keeps the current directory off the module path, where a folder named `engine` could shadow ours.
    """
    start = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {module} import main; main()"
    return [sys.executable, "-P", "-c", start]


def describe_exit(code: int) -> str:
    """Return an exit code as a sentence. Negative codes are signals, as in `subprocess`."""
    if code >= 0:
        return f"The engine process exited with code {code}."
    try:
        name = signal.Signals(-code).name
    except ValueError:  # the real-time signals have no names
        name = f"signal {-code}"
    return f"The engine process was killed by {name}."


def child_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the child: `own` without secrets, with defaults for the libraries of the child.

    Unused OpenBLAS (of numpy) would start a thread per core.
    """
    defaults = {"OPENBLAS_NUM_THREADS": "1"}
    if "OMP_WAIT_POLICY" not in own:  # which the number of spins would override
        defaults["GOMP_SPINCOUNT"] = _SPINS
    return {**defaults, **without_secrets(own)}


class EngineProcess:
    """A running child process. One task reads, one task writes; `send` and `kill` may be called from any task."""

    def __init__(self, process: Process) -> None:
        """Wrap a process that has pipes as standard input and output."""
        self.pid = process.pid
        self._process = process
        self._stdin = cast("ByteSendStream", process.stdin)
        self._stdout = cast("ByteReceiveStream", process.stdout)
        self._decoder = Decoder()
        self._outgoing: list[bytes] = []
        self._queued = Notifier()

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        """Start a child that exchanges frames on its pipes and inherits standard error. Shielded from cancellation.

        The child leads its own session, so that Ctrl-C on a terminal reaches only the gateway, which ends the child in
        order.

        Raises:
            OSError: The process cannot be started.
        """
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                command, stderr=None, start_new_session=True, env=child_environment(os.environ)
            )
        return cls(process)

    def send(self, message: ToEngine) -> None:
        """Queue a message. It is sent in order, and dropped if the child is dead.

        Raises:
            ValueError: A frame cannot carry the message, as in `encode`.
        """
        self._outgoing.append(encode(message))
        self._queued.notify()

    async def write(self) -> None:
        """Write queued messages, all pending ones at once, until cancelled or until the child closes its pipe."""
        with suppress(anyio.BrokenResourceError):
            while True:
                while not self._outgoing:
                    await self._queued.wait()
                frames, self._outgoing = self._outgoing, []
                await self._stdin.send(b"".join(frames))

    async def receive(self) -> list[Message]:
        """Wait for messages and return them; an empty list means the end of the stream.

        Raises:
            ValueError: The child sent bytes that are not a frame.
        """
        try:
            while not (messages := self._decoder.feed(await self._stdout.receive())):
                pass
        except anyio.EndOfStream:
            return []
        return messages

    def kill(self) -> None:
        """Kill the child, if it has not exited."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def end(self, grace: float) -> None:
        """Close the child's stdin, which ends it; kill it after `grace` seconds. Shielded from cancellation.

        A process that is blocked in a driver survives even a kill. It is abandoned after another `grace` seconds.
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(grace):
                await self._close_stdin()
            self.kill()
            with anyio.move_on_after(grace):
                await self._process.wait()
            if self._process.returncode is None:
                logger.error("engine process %d cannot be killed", self.pid)
            else:
                await self._process.aclose()

    async def exited(self) -> int:
        """Wait until the child has exited and return its exit code, negative for a signal."""
        return await self._process.wait()

    async def _close_stdin(self) -> None:
        """Close stdin and wait for the exit. Drains stdout, so that the child does not block on a full pipe."""
        await self._stdin.aclose()
        with suppress(anyio.BrokenResourceError):
            async for _ in self._stdout:
                pass
        await self._process.wait()
