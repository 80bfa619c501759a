"""The fork server, without processes."""

import errno
import os
import socket
from collections import deque
from contextlib import ExitStack

import pytest

from gateway.preparation.workers import forkserver
from gateway.preparation.workers.forkserver import COMMAND

PID = 2**22 + 1
"""No process has it."""


def test_a_fork_that_fails_ends_neither_the_fork_server_nor_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = iter([None, PID])

    def fork() -> int:
        if (pid := next(pids)) is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return pid

    monkeypatch.setattr(os, "fork", fork)
    workers: dict[int, int] = {}
    with ExitStack() as opened:
        sockets = [opened.enter_context(end) for _ in range(3) for end in socket.socketpair()]
        ours, control, first, first_worker, _, second_worker = sockets
        for slot, connection in enumerate((first_worker, second_worker)):
            socket.send_fds(ours, [COMMAND.pack(slot)], [connection.fileno()])
            connection.close()
        ours.shutdown(socket.SHUT_WR)
        forkserver._serve(control, workers, deque())
        assert first.recv(1) == b"", "the pool sees that there is no worker"
    assert workers == {1: PID}
