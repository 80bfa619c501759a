"""Replacement of `anyio.open_process`, and of the program's start, that forks the project's own processes."""

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

from engine.client.process import child_environment, command_for
from tests import program
from tests.prefork import server
from tests.prefork.process import ForkedProcess, PipeReader, PipeWriter
from tests.prefork.program import ForkedProgram

PREPARED: Mapping[str, Sequence[str]] = {
    "engine.worker.main": (),
    "tests.engine.fake_child": (),
    "tests.engine.client.scripted_child": (),
    "gateway.preparation.workers.forkserver": ("gateway.app",),
    "gateway.__main__": ("gateway.app", "gateway.serve", "anyio._backends._asyncio", "anyio._backends._trio"),
}
"""Modules whose `main` is run in forks, each with the modules that the process imports later."""

STDERR = 2
_MAIN = re.compile(r"from (\S+) import main; main\(\)$")


class ForkServers:
    """The fork servers of this test process. Each starts with its first child."""

    def __init__(self, stack: ExitStack) -> None:
        """Start none. `stack` ends them."""
        self._stack = stack
        self._controls: dict[str, socket.socket] = {}

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
            channel = self._request("gateway.__main__", arguments, os.environ, [null, null, theirs])
        finally:
            os.close(null)
            os.close(theirs)
        return ForkedProgram(channel, stderr)

    def _request(
        self, module: str, arguments: Sequence[str], env: Mapping[str, str], standard: Sequence[int]
    ) -> socket.socket:
        """Ask the fork server of a module for a process with these files, and return the channel of its reports."""
        if module not in self._controls:
            self._controls[module] = self._stack.enter_context(_fork_server(module))
        request = json.dumps({"arguments": [*arguments], "environment": {**env}}).encode()
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._controls[module], [request], [*standard, theirs.fileno()])
        return channel


@contextmanager
def _fork_server(module: str) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [*command_for(server.__name__), module, *PREPARED[module]]
    with theirs:
        process = subprocess.Popen(command, stdin=theirs.fileno(), env=child_environment(os.environ))
    with process, ours:
        yield ours


@contextmanager
def forked_processes() -> Iterator[None]:
    """Fork what `tests.program` starts, and what `anyio.open_process` does if its command runs one of `PREPARED`."""
    start = anyio.open_process
    with ExitStack() as stack:
        servers = ForkServers(stack)

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
            if module in PREPARED:
                return servers.fork(module, command[4:], stdin=stdin, stdout=stdout, env=env or os.environ)
            return await start(
                command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=start_new_session, env=env
            )

        with (
            patch.object(anyio, "open_process", open_process),
            patch.object(program, "start", servers.fork_program),
        ):
            yield


def _module_of(command: Sequence[str]) -> str:
    """Return the module whose `main` a command of the project runs; empty for other commands."""
    found = _MAIN.search(command[3]) if [*command[:3]] == [sys.executable, "-P", "-c"] else None
    return found[1] if found else ""
