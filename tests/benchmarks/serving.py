"""A server of a benchmark's own, and requests to it that cost little."""

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

GUARD = 120.0
"""Seconds that a start may take."""


@dataclass(frozen=True)
class Served:
    """A program that serves.

    Attributes:
        port: where it listens.
        pid: its process.
    """

    port: int
    pid: int


@contextlib.asynccontextmanager
async def serving(*flags: str) -> AsyncIterator[Served]:
    """The program with these flags, once it answers; stopped at the end."""
    port = free_port()
    command = ["-m", "gateway", "serve", "--port", str(port), "--log-level", "warning", *flags]
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
    """Whether a completion is answered by now."""
    with contextlib.suppress(OSError):
        return b" 200 " in (await post(port, prompt="time", max_tokens=1))[:16]
    return False


async def post(port: int, **body: Any) -> bytes:
    """The response to a completion request, head and body, to its end."""
    reader, writer = await open_completion(port, **body)
    answer = await reader.read()
    writer.close()
    return answer


async def open_completion(port: int, **body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A completion request on a connection of its own. It is greedy, and guesses nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps({"temperature": 0, "ignore_eos": True, "speculative": False, **body}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return reader, writer


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
