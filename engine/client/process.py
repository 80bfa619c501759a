"""The engine's process as the gateway sees it: messages in, messages out, and its end."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from engine.client.notifier import Notifier
from engine.protocol.codec import Decoder, encode
from engine.protocol.messages import Message, ToEngine

logger = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[2]


def command_for(module: str) -> list[str]:
    """The command that runs `main()` of a module of this installation.

    `-P` keeps the current directory off the module path, where a folder named `engine` could shadow ours.
    """
    start = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {module} import main; main()"
    return [sys.executable, "-P", "-c", start]


def describe_exit(code: int) -> str:
    """What an exit code says, as a sentence. Negative codes are signals, as `subprocess` has it."""
    if code >= 0:
        return f"The engine process exited with code {code}."
    try:
        name = signal.Signals(-code).name
    except ValueError:  # the real-time signals have no names
        name = f"signal {-code}"
    return f"The engine process was killed by {name}."


def _environment() -> dict[str, str]:
    """The child's: numpy's library for matrices, of which nothing is used, would start a thread for each core."""
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ}


class EngineProcess:
    """A running child. One task reads from it, one writes to it; `send` and `kill` may be called from any."""

    def __init__(self, process: Process) -> None:
        """`process` has pipes for its standard input and output."""
        self.pid = process.pid
        self._process = process
        self._stdin = cast("ByteSendStream", process.stdin)
        self._stdout = cast("ByteReceiveStream", process.stdout)
        self._decoder = Decoder()
        self._outgoing: list[bytes] = []
        self._wanted = Notifier()

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        """Start a child with its frames on its pipes and its errors on ours. Not cancelled half-way.

        It leads a session of its own, so that Ctrl-C on a terminal reaches the gateway only, which ends it in
        order. Raises `OSError`.
        """
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(command, stderr=None, start_new_session=True, env=_environment())
        return cls(process)

    def send(self, message: ToEngine) -> None:
        """Hand in a message. It leaves in its turn, and never if the child is dead. Raises `ValueError` as `encode`."""
        self._outgoing.append(encode(message))
        self._wanted.notify()

    async def write(self) -> None:
        """Write what is handed in, all that is ready at once, until cancelled or the child hears no more."""
        with suppress(anyio.BrokenResourceError):
            while True:
                while not self._outgoing:
                    await self._wanted.wait()
                frames, self._outgoing = self._outgoing, []
                await self._stdin.send(b"".join(frames))

    async def receive(self) -> list[Message]:
        """Wait for messages; an empty list says that no more will come. Raises `ValueError` for what is no frame."""
        try:
            while not (messages := self._decoder.feed(await self._stdout.receive())):
                pass
        except anyio.EndOfStream:
            return []
        return messages

    def kill(self) -> None:
        """End the child at once, if it has not ended."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def end(self, grace: float) -> None:
        """Close the child's stdin, which ends it; kill it after `grace` seconds. Not cancelled half-way.

        A process that a driver holds outlives even a kill: after as long again it is left behind.
        """
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(grace):
                await self._hang_up()
            self.kill()
            with anyio.move_on_after(grace):
                await self._process.wait()
            if self._process.returncode is None:
                logger.error("engine process %d cannot be killed", self.pid)
            else:
                await self._process.aclose()

    async def exited(self) -> int:
        """Wait for the child's end; gives its exit code, negative for a signal."""
        return await self._process.wait()

    async def _hang_up(self) -> None:
        """Its last words are read, so that it does not wait for room in the pipe."""
        await self._stdin.aclose()
        with suppress(anyio.BrokenResourceError):
            async for _ in self._stdout:
                pass
        await self._process.wait()
