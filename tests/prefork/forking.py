"""Replacement of `anyio.open_process`, and of the program's start, that forks the project's own processes."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from engine.client.process import child_environment
from engine.environment import command_for
from tests import program
from tests.prefork import server
from tests.prefork.client import CHILDREN, PROGRAM, ForkServer, forked_children

IMPORTED_LATER = ("gateway.app", "gateway.serve", "anyio._backends._asyncio", "anyio._backends._trio")
"""Modules that the processes import when they run."""


@contextmanager
def forked_processes() -> Iterator[None]:
    """Fork what `tests.program` starts, and what `anyio.open_process` does if it is a process of the project."""
    with _fork_server() as forks, forked_children(forks), patch.object(program, "start", forks.fork_program):
        yield


@contextmanager
def _fork_server() -> Iterator[ForkServer]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [*command_for(server.__name__), *CHILDREN, PROGRAM, "--", *IMPORTED_LATER]
    with theirs:
        process = subprocess.Popen(command, stdin=theirs.fileno(), env=child_environment(os.environ))
    with process, ours:
        yield ForkServer(ours)
