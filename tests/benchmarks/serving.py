"""The servers of a benchmark, cheap requests to them, and what they cost."""

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from tests.failures.processes import cpu_seconds

GUARD = 120.0
"""Seconds that a start may take."""


@dataclass(frozen=True)
class Served:
    """A program that serves."""

    port: int
    """The port it listens on."""
    pid: int
    """The process id."""


def serving(*flags: str, program: Sequence[str] = ("-m", "gateway")) -> AbstractAsyncContextManager[Served]:
    """Run the program with these flags. `program` are arguments of Python that run it."""
    port = free_port()
    own = ["serve", "--port", str(port), "--log-level", "warning"]
    return _running([sys.executable, *program, *own, *flags], port)


def llama_server(binary: str, *flags: str) -> AbstractAsyncContextManager[Served]:
    """Run llama-server, without its output."""
    port = free_port()
    return _running([binary, "--port", str(port), "--no-webui", *flags], port, asyncio.subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def _running(command: Sequence[str], port: int, output: int | None = None) -> AsyncIterator[Served]:
    """Run a server and yield it once it answers; stop it at the end."""
    process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)
    try:
        async with asyncio.timeout(GUARD):
            while not await _answers(port):  # noqa: ASYNC110 - a server is all there is to ask
                await asyncio.sleep(0.05)
        yield Served(port, process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _answers(port: int) -> bool:
    """Return true once a completion is answered."""
    with contextlib.suppress(OSError):
        return b" 200 " in (await post(port, prompt="time", max_tokens=1))[:16]
    return False


async def post(port: int, **body: Any) -> bytes:
    """Return the response to a completion request, head and body, to its end."""
    reader, writer = await open_completion(port, **body)
    answer = await reader.read()
    writer.close()
    return answer


async def open_completion(port: int, **body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a completion request on a new connection. It is greedy and not speculative."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = {"temperature": 0, "ignore_eos": True, "speculative": False, **body}
    writer.write(request_to("/v1/completions", asked, "Connection: close"))
    return reader, writer


def request_to(path: str, body: Mapping[str, Any], *fields: str) -> bytes:
    """Return the bytes of a POST, with further fields of its head."""
    data = json.dumps(body).encode()
    own = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(data)}")
    return "\r\n".join((*own, *fields, "", "")).encode() + data


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_of(served: Served) -> float:
    """Return the CPU seconds of a server's process, and of its engine's."""
    return sum(map(cpu_seconds, (served.pid, *children_of(served.pid))))


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's children, whichever thread started them."""
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


@contextlib.contextmanager
def starting(
    flags: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Start the program and yield it with its port at once; stop it at the end, or after `GUARD`."""
    port = free_port()
    command = [sys.executable, "-m", "gateway", "serve", "--port", str(port), *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        guard = Timer(GUARD, process.kill)
        guard.start()
        try:
            yield process, port
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
            guard.cancel()


def connect(port: int) -> http.client.HTTPConnection:
    """Connect as soon as the port listens."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD)
        try:
            connection.connect()
        except ConnectionRefusedError:
            time.sleep(0.002)
        else:
            return connection


def wait_until_loaded(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if "listening on" in line:
            return
        lines.append(line)
    raise RuntimeError(f"the program ended: {''.join(lines)}")


def first_token_at(connection: http.client.HTTPConnection, prompt: str | list[int]) -> float:
    """Ask for a short stream, and return the time of its first token."""
    body = {"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    while not (line := response.readline()).startswith(b"data: {"):
        if response.status != http.client.OK or not line:
            raise RuntimeError(f"status {response.status}: {line!r}")
    now = time.perf_counter()
    response.read()
    return now
