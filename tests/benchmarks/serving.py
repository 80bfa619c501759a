"""The server of a benchmark, and cheap requests to it."""

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

GUARD = 120.0
"""Seconds that a start may take."""


@dataclass(frozen=True)
class Served:
    """A program that serves."""

    port: int
    """The port it listens on."""
    pid: int
    """The process id."""


@contextlib.asynccontextmanager
async def serving(*flags: str, program: Sequence[str] = ("-m", "gateway")) -> AsyncIterator[Served]:
    """Run the program with these flags and yield it once it answers; stop it at the end.

    `program` are arguments of Python that run it.
    """
    port = free_port()
    command = [*program, "serve", "--port", str(port), "--log-level", "warning", *flags]
    process = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        async with asyncio.timeout(GUARD):
            while not await answers(port):  # noqa: ASYNC110 - a server is all there is to ask
                await asyncio.sleep(0.05)
        yield Served(port, process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def answers(port: int) -> bool:
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
    data = json.dumps({"temperature": 0, "ignore_eos": True, "speculative": False, **body}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return reader, writer


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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


def wait_until_loaded(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if "listening on" in line:
            return
        lines.append(line)
    raise RuntimeError(f"the program ended: {''.join(lines)}")
