"""The gateway's memory is flat after the warm-up, whatever clients ask for and however they leave."""

import anyio
import pytest

from tests.backends import ON_ASYNCIO
from tests.failures.processes import needs_proc, resident_bytes
from tests.gateway.server.sockets import Client, get
from tests.repeat import TIMES, thorough
from tests.system.answers import STREAMED
from tests.system.served import GUARD, completion, post

pytestmark = [pytest.mark.anyio, pytest.mark.long, thorough, needs_proc]

CLIENTS = 10
ROUNDS = 4 * TIMES
GROWTH = 4 << 20
"""Bytes that the gateway may grow by after the warm-up: the room that allocators keep."""

MESSAGES = [{"role": "user", "content": "Hello"}]
WHOLE = (
    get("/health"),
    get("/v1/models"),
    get("/nowhere"),
    post("a", "/v1/completions", prompt=5),
    post("a", "/v1/completions", prompt="x" * 100_000, max_tokens=1),
    post("a", "/tokenize", content="hello " * 50),
    post("a", "/v1/responses", input="Hello", max_output_tokens=2),
    completion("a", max_tokens=2),
    completion("a", max_tokens=2, **STREAMED),
)
"""Requests whose answers are read."""
LEFT = (
    completion("a", max_tokens=200, **STREAMED),
    completion("a", max_tokens=200),
    b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n" + b" " * 50_000,
)
"""Requests whose clients leave."""


async def visit(port: int) -> None:
    """Send every request once, each on a new connection."""
    for request in WHOLE:
        client = Client(port)
        await client.send(request)
        assert (await client.answer()).status < 500
        client.close()
    for request in LEFT:
        client = Client(port)
        await client.send(request)
        await anyio.sleep(0.005)  # so that some are left in the queue, in a prompt, and in a stream
        client.reset()


async def visit_all(port: int, rounds: int) -> None:
    async def stay() -> None:
        for _ in range(rounds):
            await visit(port)

    with anyio.fail_after(GUARD * TIMES):
        async with anyio.create_task_group() as tasks:
            for _ in range(CLIENTS):
                tasks.start_soon(stay)


@ON_ASYNCIO
async def test_the_gateway_does_not_grow(gateway: tuple[int, int]) -> None:
    port, pid = gateway
    await visit_all(port, ROUNDS)
    series = [resident_bytes(pid)]
    for _ in range(3):
        await visit_all(port, ROUNDS)
        series.append(resident_bytes(pid))
    assert series[-1] - series[0] < GROWTH, series
