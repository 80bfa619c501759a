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


def test_forks_that_fail_end_neither_the_fork_server_nor_other_workers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pids = iter([None, None, PID])

    def fork() -> int:
        if (pid := next(pids)) is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return pid

    monkeypatch.setattr(os, "fork", fork)
    workers: dict[int, int] = {}
    with ExitStack() as opened:
        sockets = [opened.enter_context(end) for _ in range(4) for end in socket.socketpair()]
        ours, control, first, first_worker, second, second_worker, _, third_worker = sockets
        for slot, connection in enumerate((first_worker, second_worker, third_worker)):
            socket.send_fds(ours, [COMMAND.pack(slot)], [connection.fileno()])
            connection.close()
        ours.shutdown(socket.SHUT_WR)
        forkserver._serve(control, workers, deque())
        assert first.recv(1) == second.recv(1) == b"", "the pool sees that there is no worker"
    assert workers == {2: PID}
    assert len(caplog.records) == 1, "a line for all failures in a row"
