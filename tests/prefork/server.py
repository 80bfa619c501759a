"""The process that is copied: it imports modules, forks on request, and reports the ends of its children."""

import gc
import importlib
import json
import logging
import os
import selectors
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

REPORT = struct.Struct("=i")
"""Layout of a report on a child's channel: first its process id, then its exit code, negative for a signal."""
MAX_REQUEST = 2**17
"""Maximum size of a request in bytes: JSON with the child's arguments and environment."""


class Server:
    """Forks children as requested on a socket. Its end is the end of all children."""

    def __init__(self, control: socket.socket, main: Callable[[], Any]) -> None:
        """Prepare for requests on `control`, which keeps their boundaries. Each child runs `main`: its exit code."""
        self._control = control
        self._main = main
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, self._take_request)
        self._channels: dict[int, int] = {}
        """Channel of each child, by its process id."""
        self._over = False

    def run(self) -> None:
        """Serve until the other side closes its socket."""
        while not self._over:
            for ready, _ in self._selector.select():
                ready.data()
        for pid in self._channels:
            os.kill(pid, signal.SIGKILL)

    def _take_request(self) -> None:
        request, descriptors, *_ = socket.recv_fds(self._control, MAX_REQUEST, 4)
        if not request:
            self._over = True
            return
        *standard, channel = descriptors
        if (pid := os.fork()) == 0:
            self._run_child(channel, standard, **json.loads(request))
        for descriptor in standard:
            os.close(descriptor)
        self._channels[pid] = channel
        ended = os.pidfd_open(pid)
        self._selector.register(ended, selectors.EVENT_READ, partial(self._reap, pid, ended))

    def _reap(self, pid: int, ended: int) -> None:
        self._selector.unregister(ended)
        os.close(ended)
        _, status = os.waitpid(pid, 0)
        channel = self._channels.pop(pid)
        self._report(channel, os.waitstatus_to_exitcode(status))
        os.close(channel)

    def _report(self, channel: int, number: int) -> None:
        with suppress(BrokenPipeError):  # the test has ended
            os.write(channel, REPORT.pack(number))

    def _run_child(
        self, channel: int, standard: Sequence[int], arguments: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        code = 1
        try:
            os.setsid()
            self._report(channel, os.getpid())
            for target, descriptor in enumerate(standard):
                os.dup2(descriptor, target)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            sys.argv[1:] = arguments
            os.environ.clear()
            os.environ.update(environment)
            code = self._main() or 0
            logging.shutdown()  # as the interpreter would: lines of the log may wait
        except BaseException:  # noqa: BLE001 - shown as the interpreter would
            traceback.print_exc()
        finally:
            os._exit(code)  # without the cleanup of the process that it is a copy of


def main() -> None:
    """Serve requests on standard input. The arguments are modules: the `main` of the first is what children run."""
    module, *_ = [importlib.import_module(name) for name in sys.argv[1:]]
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as control:
        Server(control, module.main).run()
