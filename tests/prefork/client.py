"""Requests to the fork server, and the replacement of `anyio.open_process` that makes them."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import anyio
from anyio.abc import Process

from tests.prefork.process import ForkedProcess, PipeReader, PipeWriter
from tests.prefork.program import ForkedProgram

ENGINES = ("engine.worker.main", "tests.engine.fake_child")
"""Modules whose `main` is an engine."""
CHILDREN = (*ENGINES, "tests.engine.client.scripted_child", "gateway.preparation.workers.forkserver")
"""Modules whose `main` is run in forks, in place of the command that `engine.client.process.command_for` returns."""
PROGRAM = "tests.prefork.gateway"
"""Module whose `main` is `llama-gateway`."""

STDERR = 2
_MAIN = re.compile(r"from (\S+) import main; main\(\)$")


def engine_name(owner: int) -> str:
    """Return the name that the kernel lists for a forked engine of this process. It has at most 15 characters."""
    return f"engine {owner}"


class ForkServer:
    """The side of the fork server's socket that requests processes."""

    def __init__(self, control: socket.socket) -> None:
        """Wrap the socket."""
        self._control = control

    def fork(
        self, module: str, arguments: Sequence[str], *, stdin: int, stdout: int, env: Mapping[str, str]
    ) -> ForkedProcess:
        """Run `main` of a module in a new process. `stdin` and `stdout` are as of `subprocess`."""
        with ExitStack() as passed:
            writer = reader = None
            if stdin == subprocess.PIPE:
                stdin, ours = os.pipe()
                passed.callback(os.close, stdin)
                writer = PipeWriter(ours)
            if stdout == subprocess.PIPE:
                ours, stdout = os.pipe()
                passed.callback(os.close, stdout)
                reader = PipeReader(ours)
            elif stdout == subprocess.DEVNULL:
                stdout = os.open(os.devnull, os.O_WRONLY)
                passed.callback(os.close, stdout)
            channel = self._request(module, arguments, env, [stdin, stdout, STDERR])
        return ForkedProcess(channel, writer, reader)

    def fork_program(self, arguments: Sequence[str]) -> ForkedProgram:
        """Run `llama-gateway` in a new process, with its standard error in a pipe."""
        null = os.open(os.devnull, os.O_RDWR)
        stderr, theirs = os.pipe()
        try:
            channel = self._request(PROGRAM, arguments, os.environ, [null, null, theirs])
        finally:
            os.close(null)
            os.close(theirs)
        return ForkedProgram(channel, stderr)

    def _request(
        self, module: str, arguments: Sequence[str], env: Mapping[str, str], standard: Sequence[int]
    ) -> socket.socket:
        """Ask for a process with these files, and return the channel of its reports."""
        request = {
            "module": module,
            "name": engine_name(os.getpid()) if module in ENGINES else module.rpartition(".")[2],
            "arguments": [*arguments],
            "environment": {**env},
            "forks": module == PROGRAM,
        }
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._control, [json.dumps(request).encode()], [*standard, theirs.fileno()])
        return channel


@contextmanager
def forked_children(server: ForkServer) -> Iterator[None]:
    """Fork what `anyio.open_process` starts if its command runs one of `CHILDREN`."""
    start = anyio.open_process

    async def open_process(
        command: Sequence[str],
        *,
        stdin: int = subprocess.PIPE,
        stdout: int = subprocess.PIPE,
        stderr: None = None,
        start_new_session: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        module = _module_of(command)
        if module in CHILDREN:
            return server.fork(module, command[4:], stdin=stdin, stdout=stdout, env=env or os.environ)
        return await start(
            command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=start_new_session, env=env
        )

    with patch.object(anyio, "open_process", open_process):
        yield


def _module_of(command: Sequence[str]) -> str:
    """Return the module whose `main` a command of the project runs; empty for other commands."""
    found = _MAIN.search(command[3]) if [*command[:3]] == [sys.executable, "-P", "-c"] else None
    return found[1] if found else ""
