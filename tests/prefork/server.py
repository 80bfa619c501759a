"""The process that is copied: it imports modules, forks on request, and reports the ends of its children.

A child that forks itself, as the gateway does, requests this of the same process, on a socket of its own.
"""

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
from pathlib import Path
from typing import Any

REPORT = struct.Struct("=i")
"""Layout of a report on a child's channel: first its process id, then its exit code, negative for a signal."""
MAX_REQUEST = 2**17
"""Maximum size of a request in bytes: JSON with the child's arguments and environment."""


CONTROL = 3
"""File descriptor of a child that may request children: its socket for requests."""


class Server:
    """Forks children as requested on sockets. The end of the first socket is the end of all children."""

    def __init__(self, control: socket.socket, mains: Mapping[str, Callable[[], Any]]) -> None:
        """Prepare for requests on `control`, which keeps their boundaries. `mains` are what children run, by name."""
        self._mains = mains
        self._selector = selectors.DefaultSelector()
        self._first = control
        self._channels: dict[int, int] = {}
        """Channel of each child, by its process id."""
        self._over = False
        self._listen(control)

    def run(self) -> None:
        """Serve until the other side closes its socket."""
        while not self._over:
            for ready, _ in self._selector.select():
                ready.data()
        for pid in self._channels:
            os.kill(pid, signal.SIGKILL)

    def _listen(self, control: socket.socket) -> None:
        self._selector.register(control, selectors.EVENT_READ, partial(self._take_request, control))

    def _take_request(self, control: socket.socket) -> None:
        request, descriptors, *_ = socket.recv_fds(control, MAX_REQUEST, 4)
        if request:
            *standard, channel = descriptors
            self._fork(channel, standard, **json.loads(request))
        elif control is self._first:
            self._over = True
        else:  # the child has ended; its children notice it as they do in the program
            self._selector.unregister(control)
            control.close()

    def _fork(self, channel: int, standard: Sequence[int], *, forks: bool, **request: Any) -> None:
        """Fork a child. One that `forks` gets a socket for its own requests."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if forks else (None, None)
        files = [*standard, theirs.fileno()] if theirs else standard
        if (pid := os.fork()) == 0:
            self._run_child(channel, files, **request)
        for descriptor in standard:
            os.close(descriptor)
        if ours and theirs:
            theirs.close()
            self._listen(ours)
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
        with suppress(
            BrokenPipeError, ConnectionResetError
        ):  # who asked has ended, perhaps before it read the first one
            os.write(channel, REPORT.pack(number))

    def _run_child(
        self,
        channel: int,
        files: Sequence[int],
        *,
        module: str,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        code = 1
        try:
            os.setsid()
            Path("/proc/self/comm").write_text(name)
            self._report(channel, os.getpid())
            for target, descriptor in enumerate(files):
                os.dup2(descriptor, target)
            os.closerange(len(files), os.sysconf("SC_OPEN_MAX"))
            sys.argv[1:] = arguments
            os.environ.clear()
            os.environ.update(environment)
            code = self._mains[module]() or 0
            logging.shutdown()  # as the interpreter would: lines of the log may wait
        except BaseException:  # noqa: BLE001 - shown as the interpreter would
            traceback.print_exc()
        finally:
            os._exit(code)  # without the cleanup of the process that it is a copy of


def main() -> None:
    """Serve requests on standard input.

    The arguments are modules with a `main` that children run, `--`, and modules that these import later.
    """
    split = sys.argv.index("--")
    mains = {name: importlib.import_module(name).main for name in sys.argv[1:split]}
    for name in sys.argv[split + 1 :]:
        importlib.import_module(name)
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as control:
        Server(control, mains).run()
