"""The program in processes of its own: the gateway, and the engine that it starts."""

import os
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TypeAlias

from tests.models import model_path
from tests.prefork import server as fork_server
from tests.prefork.client import ENGINES, engine_name
from tests.prefork.program import ForkedProgram

ROOT = Path(__file__).parents[1]
GUARD = 60.0
"""Seconds after which a test gives up waiting. Never a part of an assertion."""

FLAGS = shlex.split(os.environ.get("LLAMA_GATEWAY_TEST_FLAGS", ""))
"""Flags that override those of every server on a real model, for example `--threads 2 --speculation off`.
The tests must pass with any threads, speculation and repacking. Other variables for servers do not reach the tests."""

Process: TypeAlias = subprocess.Popen[str] | ForkedProgram
FORK_SERVER = fork_server.__name__.encode()


@contextmanager
def program(*arguments: str) -> Iterator[Process]:
    """Run `llama-gateway serve`. Its output is on its `stderr`, which need not be read."""
    with _until_left(start(_serve(arguments))) as process:
        yield process


@contextmanager
def program_of_users(*arguments: str) -> Iterator[Process]:
    """Run `llama-gateway serve` with an interpreter of its own, also in tests."""
    with _until_left(start_interpreter(_serve(arguments))) as process:
        yield process


def start_interpreter(arguments: Sequence[str]) -> Process:
    """Start `llama-gateway` as users do."""
    return subprocess.Popen([sys.executable, "-m", "gateway", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True)


start = start_interpreter
"""Starts `llama-gateway`. In tests, `tests.prefork` replaces it."""


def _serve(arguments: Sequence[str]) -> list[str]:
    return ["serve", "--port", "0", *arguments, *FLAGS]


@contextmanager
def _until_left(process: Process) -> Iterator[Process]:
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def serving_program(*arguments: str) -> Iterator[tuple[Process, int]]:
    """Run the program on the test model, or on those of the arguments; yield it and its port once it serves.

    With one thread for the model: on a busy machine several would wait for each other at every layer.
    """
    model = () if "--model" in arguments else ("--model", str(model_path()))
    with program(*model, "--threads", "1", *arguments) as process:
        yield process, _port(process)


@dataclass(frozen=True)
class Embedded:
    """The program on its embedded model."""

    process: Process
    root: str
    """The base URL of the server, without a slash at the end."""

    @property
    def url(self) -> str:
        """Return the base URL for OpenAI's clients."""
        return f"{self.root}/v1"


@contextmanager
def serving_embedded(*arguments: str) -> Iterator[Embedded]:
    """Run the program without a model path; yield it once it serves."""
    with program("--threads", "1", *arguments) as process:
        yield Embedded(process, f"http://127.0.0.1:{_port(process)}")


def _port(process: Process) -> int:
    """Return the port once the program listens."""
    line = said(process, "listening on http://127.0.0.1:")
    return int(line.partition("127.0.0.1:")[2].partition(",")[0])


def said(process: Process, words: str) -> str:
    """Read the output until a line with these words."""
    return log_until(process, words)[-1]


def log_until(process: Process, *words: str) -> list[str]:
    """Read the output until all these words have come, each in a line; return the lines read."""
    assert process.stderr is not None
    guard = Timer(GUARD, process.kill)
    guard.start()
    lines = []
    missing = set(words)
    try:
        for line in process.stderr:
            lines.append(line)
            missing -= {one for one in missing if one in line}
            if not missing:
                return lines
    finally:
        guard.cancel()
    raise AssertionError("".join(lines))


def engines_of(gateway: int) -> list[int]:
    """Return the engine processes that a gateway has started or forked, as the kernel lists them."""
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _is_engine(process, gateway)]


def _is_engine(process: Path, gateway: int) -> bool:
    with suppress(OSError):  # it has ended meanwhile
        command = (process / "cmdline").read_bytes()
        if FORK_SERVER in command:
            return (process / "comm").read_text() == f"{engine_name(gateway)}\n"
        parent = int((process / "status").read_text().partition("\nPPid:")[2].split()[0])
        return parent == gateway and any(engine.encode() in command for engine in ENGINES)
    return False


@contextmanager
def must_end(pid: int) -> Iterator[None]:
    """On leaving, wait until the process has ended."""
    handle = os.pidfd_open(pid)
    try:
        yield
        ended, _, _ = select.select([handle], [], [], GUARD)
        assert ended, f"process {pid} is still there"
    finally:
        os.close(handle)
