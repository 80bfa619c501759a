"""A forked program, with the interface of `subprocess.Popen`."""

import os
import select
import signal
import socket
import threading
from contextlib import suppress
from subprocess import TimeoutExpired
from types import TracebackType
from typing import Any, Self

from tests.prefork.server import REPORT


class ForkedProgram:
    """A child of a fork server, for code that waits by blocking its thread. Its standard error is a pipe."""

    def __init__(self, channel: socket.socket, stderr: int) -> None:
        """Wrap the channel on which the fork server reports, and the reading end of the pipe."""
        self.stderr = os.fdopen(stderr)
        self.returncode: int | Any = None  # as in the type stubs of `Popen`
        self._channel = channel
        self.pid = self._report()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stderr.close()
        self.wait()
        self._channel.close()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the program runs."""
        return self.returncode if self.returncode is not None or not self._reported(0) else self._end()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code as soon as the program has ended."""
        if self.returncode is not None:
            return int(self.returncode)
        if not self._reported(timeout):
            raise TimeoutExpired("llama-gateway", timeout or 0)
        return self._end()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return nothing for standard output, and all of standard error."""
        guard = threading.Timer(timeout or threading.TIMEOUT_MAX, self.kill)
        guard.start()
        try:
            output = self.stderr.read()
        finally:
            guard.cancel()
        self.wait()
        return "", output

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reported(self, timeout: float | None) -> bool:
        """Wait for the report of the end."""
        ready, _, _ = select.select([self._channel], [], [], timeout)
        return bool(ready)

    def _end(self) -> int:
        code = self.returncode = self._report()
        return code

    def _report(self) -> int:
        (number,) = REPORT.unpack(self._channel.recv(REPORT.size))
        return int(number)
