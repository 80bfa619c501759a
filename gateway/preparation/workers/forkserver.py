"""Fork server: a small process that imports modules once, and forks a worker in milliseconds.

It runs no job itself, so that a job cannot harm it, and has one thread, so that a fork is safe. Workers share its
memory until they write to it. They inherit its confinement.
"""

import gc
import importlib
import logging
import os
import select
import signal
import socket
import struct
import sys
from collections import deque
from contextlib import suppress
from typing import Final

from gateway.preparation.workers.confinement import confine
from gateway.preparation.workers.worker import work

logger = logging.getLogger(__name__)

COMMAND: Final = struct.Struct(">B")
"""Layout of a command: the slot whose worker is to be replaced. The new worker's connection comes with it."""


def main() -> None:
    """Serve commands on standard input, a socket. The arguments of the process are modules to import.

    The end of the commands is the end of the gateway, and of all workers.
    """
    gc.disable()
    confine()
    with socket.socket(fileno=os.dup(0)) as control:
        _close_standard_input()
        workers: dict[int, int] = {}
        first, *others = sys.argv[1:]
        importlib.import_module(first)
        try:
            with suppress(ConnectionError):
                _serve(control, workers, deque(others))
        finally:
            for pid in workers.values():
                _kill(pid)


def _serve(control: socket.socket, workers: dict[int, int], modules: deque[str]) -> None:
    """Serve commands, and import modules while there are none. A worker imports what it does not find."""
    works = True
    while True:
        while modules and not select.select([control], [], [], 0)[0]:
            importlib.import_module(modules.popleft())
        command, descriptors, *_ = socket.recv_fds(control, COMMAND.size, 1)
        if not command:
            return
        (slot,) = COMMAND.unpack(command)
        with socket.socket(fileno=descriptors[0]) as connection:
            if slot in workers:
                _kill(workers.pop(slot))
            try:
                workers[slot] = _fork(control, connection)
                works = True
            except OSError as error:  # as at a limit of processes; the closed connection lets the pool try again
                if works:
                    logger.error("a worker of the preparation cannot be forked: %s", error)  # noqa: TRY400
                works = False


def _fork(control: socket.socket, connection: socket.socket) -> int:
    """Fork a worker, and return its process id."""
    if pid := os.fork():
        return pid
    try:
        control.close()
        work(connection)
    except Exception:
        logger.critical("a worker of the preparation failed", exc_info=True)
    finally:
        os._exit(0)  # without the cleanup of the process that it is a copy of


def _kill(pid: int) -> None:
    """Kill a worker and wait for its end. A worker that has ended keeps its id until then."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _close_standard_input() -> None:
    with open(os.devnull, "rb") as empty:  # noqa: PTH123
        os.dup2(empty.fileno(), 0)
