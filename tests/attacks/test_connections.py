"""Connections that cost the server more than the client: pieces, uploads that stall, heads that never end."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import anyio
import pytest

from tests.attacks.watched import Attacked, attacked
from tests.failures.processes import needs_proc
from tests.gateway.server.sockets import Client
from tests.repeat import TIMES, thorough
from tests.system.answers import STREAMED
from tests.system.served import GUARD, completion

pytestmark = [pytest.mark.anyio, thorough, needs_proc]

CONNECTIONS = 16
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
LARGE = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8000000\r\n\r\n"


Attack = Callable[[Client], Coroutine[Any, Any, None]]
"""Sends something on a connection."""


async def send_until_closed(client: Client, data: bytes) -> None:
    """Send bytes. A server that has had enough may close, with a response or with a reset."""
    with suppress(BrokenPipeError, ConnectionResetError):
        await client.send(data)


async def one_byte_chunks(client: Client) -> None:
    await client.send(CHUNKED)
    await send_until_closed(client, b"1\r\nx\r\n" * 25_000 * TIMES)


async def long_chunk_extensions(client: Client) -> None:
    await client.send(CHUNKED)
    await send_until_closed(client, b"1;" + b"x" * 100_000 * TIMES)


async def one_byte_writes(client: Client) -> None:
    await client.send(LARGE)
    for _ in range(300 * TIMES):
        await send_until_closed(client, b" ")


async def uploads_that_stall(client: Client) -> None:
    await client.send(LARGE + b" " * 500_000)


async def heads_that_stall(client: Client) -> None:
    await client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 60_000)


async def many_header_lines(client: Client) -> None:
    await send_until_closed(client, b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 20_000 * TIMES)


async def whole_heads_of_many_lines(client: Client) -> None:
    for _ in range(TIMES):
        await send_until_closed(client, b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a:\r\n" * 15_000 + b"\r\n")


async def empty_lines(client: Client) -> None:
    await send_until_closed(client, b"\r\n" * 100_000 * TIMES)


async def pipelined_requests(client: Client) -> None:
    await send_until_closed(client, b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n" * 400 * TIMES)


async def answers_that_are_not_read(client: Client) -> None:
    await client.send(completion("unread", prompt="a", max_tokens=2000, **STREAMED))


ATTACKS: list[Attack] = [
    one_byte_chunks,
    long_chunk_extensions,
    one_byte_writes,
    uploads_that_stall,
    heads_that_stall,
    many_header_lines,
    whole_heads_of_many_lines,
    empty_lines,
    pipelined_requests,
    answers_that_are_not_read,
]


async def run(target: Attacked, attack: Attack) -> list[Client]:
    """Attack on many connections at once. Returns the connections, which are still open."""
    clients = [target.served.client() for _ in range(CONNECTIONS)]
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(attack, client)
    return clients


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_hostile_connections_do_not_hold_the_event_loop(anyio_backend: str, attack: Attack) -> None:
    async with attacked(anyio_backend) as target:
        clients = await run(target, attack)
        health = await target.served.answer(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert health.status == 200
        await target.neighbour.more()
        for client in clients:
            client.reset()
