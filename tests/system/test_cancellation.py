"""Clients that hang up, in every way and phase, streaming or not, alone or beside others: all their state is freed.

The engine is a real process with passes of ten milliseconds, so that every phase lasts.
"""

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
import pytest

from tests.engine.driver import continuation
from tests.gateway.server.sockets import LEAVE, Client
from tests.gateway.server.tls.clients import LEAVE_TLS
from tests.repeat import every_case
from tests.system.served import GUARD, LONG_PROMPT, MANY, PASS, Served, completion, serving

pytestmark = [pytest.mark.anyio, every_case]
on_each_backend = pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])

LONG_NAME = "x" * 40_000
"""Text in every event of a stream, so that few events fill all buffers on their way."""
_numbers = count()


HELD_BACK = continuation("hold", 200) + "!"

PHASES: dict[str, tuple[str, dict[str, Any]]] = {
    "prefill": ("prefill", {"prompt": LONG_PROMPT, "max_tokens": 5}),
    "decode": ("decode", {"max_tokens": MANY}),
    "holding back a possible stop string": ("decode", {"prompt": "hold", "stop": [HELD_BACK], "max_tokens": MANY}),
    "n choices, more than there are slots": ("decode", {"n": 7, "max_tokens": MANY}),
    "several prompts": ("decode", {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": MANY}),
    "token ids": ("prefill", {"prompt": list(LONG_PROMPT.encode()), "max_tokens": 5}),
}


def behind_pipelined_bytes(client: Client) -> None:
    client.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 3)
    client.close()


def behind_stray_newlines(client: Client) -> None:
    client.write(b"\r\n\r\n")
    client.close()


WAYS: dict[str, Callable[[Client], None]] = {
    **LEAVE,
    "behind pipelined bytes": behind_pipelined_bytes,
    "behind stray newlines": behind_stray_newlines,
}


@asynccontextmanager
async def neighbours(served: Served, number: int) -> AsyncIterator[list[Client]]:
    """Start streams that decode continuously, and read them."""
    clients = [served.client() for _ in range(number)]
    async with anyio.create_task_group() as readers:
        for index, client in enumerate(clients):
            await client.send(completion(f"neighbour-{index}", max_tokens=MANY, stream=True))
            await served.until_in("decode", f"neighbour-{index}")
            readers.start_soon(client.is_closed)
        yield clients
        readers.cancel_scope.cancel()
    for client in clients:
        client.close()
    await served.until_idle()


async def no_row_is_carried(served: Served, others: int) -> None:
    """Check that each further step decodes only the other streams' rows, and that without them no step runs."""
    before = await served.metrics()
    if others:
        after = await served.until(lambda _, f: f.steps >= before.steps + 3)
        assert after.rows_decoded - before.rows_decoded == others * (after.steps - before.steps)
    else:
        assert await served.metrics() == before


async def leave_in(served: Served, state: str, leave: Callable[[Client], None], others: int, **body: Any) -> None:
    request_id = f"leaver-{next(_numbers)}"
    client = await served.connect()
    await client.send(completion(request_id, **body))
    await served.until_in(state, request_id)
    leave(client)
    await served.until_gone(request_id)
    metrics = await served.until(lambda _, f: f.held == others and not f.waiting)
    assert metrics.free + metrics.held == metrics.slots
    assert metrics.cached_tokens == 0, "a cancelled request keeps nothing"
    await no_row_is_carried(served, others)
    client.close()
    await served.connections_fall_to(others)


@on_each_backend
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside two streams"])
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_hang_up_frees_the_request_before_the_next_pass(phase: str, stream: bool, others: int) -> None:
    state, body = PHASES[phase]
    async with serving(seconds_per_pass=PASS, slots=4, grace=0.0) as served, neighbours(served, others):
        for leave in WAYS.values():
            await leave_in(served, state, leave, others, stream=stream, **body)


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_a_hang_up_over_tls_frees_the_request_before_the_next_pass(phase: str, stream: bool) -> None:
    state, body = PHASES[phase]
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0, secure=True) as served:
        for leave in [*WAYS.values(), *LEAVE_TLS.values()]:
            await leave_in(served, state, leave, 0, stream=stream, **body)


@on_each_backend
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_hang_up_in_the_queue_frees_the_request(stream: bool) -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0) as served, neighbours(served, 2):
        for leave in WAYS.values():
            client = await served.send(completion("waits", stream=stream, max_tokens=5))
            await served.until(lambda _, f: f.waiting == 1)
            leave(client)
            await served.until(lambda _, f: f.waiting == 0)
            client.close()
            await served.connections_fall_to(2)
            await no_row_is_carried(served, 2)


@on_each_backend
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside two streams"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_hang_up_while_the_body_is_read_frees_the_request(way: str, others: int) -> None:
    async with serving(seconds_per_pass=PASS, slots=4, grace=0.0) as served, neighbours(served, others):
        client = served.client()
        request = completion("never whole", max_tokens=5)
        await client.send(request.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n")[:-20])
        with anyio.fail_after(GUARD):
            await client.read_until(b"100 \r\n")
        WAYS[way](client)
        client.close()
        await served.connections_fall_to(others)
        metrics = await served.metrics()
        assert (metrics.held, metrics.waiting) == (others, 0)
        await no_row_is_carried(served, others)


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside two streams"])
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_hang_up_while_the_last_bytes_are_written_frees_the_connection(stream: bool, others: int) -> None:
    async with serving(seconds_per_pass=PASS, slots=4, grace=0.0) as served, neighbours(served, others):
        for leave in LEAVE.values():
            await leave_at_the_end(served, leave, others, stream=stream)


async def leave_at_the_end(served: Served, leave: Callable[[Client], None], others: int, *, stream: bool) -> None:
    computed = (await served.metrics()).prompt_tokens
    client = await served.send(completion("short", max_tokens=5, stream=stream, cache_prompt=False))
    await served.until(lambda _, f: f.prompt_tokens > computed)
    await served.until_gone("short")
    leave(client)
    client.close()
    await served.connections_fall_to(others)
    await no_row_is_carried(served, others)


async def test_a_lone_cancel_aborts_the_pass_under_way() -> None:
    async with serving(seconds_per_pass=1000.0, slots=2, grace=0.0) as served:
        client = await served.send(completion("stuck in a pass", max_tokens=5))
        await served.until_in("prefill", "stuck in a pass")
        client.close()
        metrics = await served.until_idle()
        assert metrics.aborted == 1


async def test_a_neighbours_prompt_is_aborted_too_when_its_client_leaves() -> None:
    """The pass of a prompt alone has no rows of other requests."""
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0) as served, neighbours(served, 1):
        before = (await served.metrics()).aborted
        with anyio.fail_after(GUARD):
            while (await served.metrics()).aborted == before:
                await leave_in(served, "prefill", Client.close, 1, prompt=LONG_PROMPT, max_tokens=5)


def cancel_line(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Return the fields of the only log line about a cancel."""
    (record,) = [record for record in caplog.records if record.getMessage().startswith("request cancelled")]
    assert record.getMessage() == "request cancelled"
    fields = vars(record)
    assert fields["ms"] >= 0
    return fields


async def never(client: Client) -> None:
    """Never read."""


async def a_byte_at_a_time(client: Client) -> None:
    """Read on, but so slowly that the answer would take for ever: every byte is a sign of life to the kernel."""
    while True:
        await anyio.wait_readable(client.sock)
        client.sock.recv(1)
        await anyio.sleep(0.01)


@pytest.mark.parametrize("read", [never, a_byte_at_a_time])
async def test_a_client_that_does_not_read_its_stream_loses_its_slot(
    read: Callable[[Client], Coroutine[Any, Any, None]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(seconds_per_pass=0.0, slots=1, grace=0.0, client_patience=0.5, alias=LONG_NAME) as served:
        client = await served.send(completion("deaf", max_tokens=MANY, stream=True), receive_buffer=2048)
        await served.until_in("decode", "deaf")
        async with anyio.create_task_group() as readers:
            readers.start_soon(read, client)
            await served.until_idle()
            readers.cancel_scope.cancel()
        await served.connections_fall_to(0)
        client.close()
    fields = cancel_line(caplog)
    assert (fields["request_id"], fields["phase"]) == ("deaf", "decode")
    assert fields["reason"] == "the client reads too slowly"
    assert fields["tokens"] >= 1
    assert fields["freed"] >= 1


async def test_a_deadline_ends_a_request_like_a_hang_up() -> None:
    async with serving(seconds_per_pass=PASS, slots=1, grace=0.0, request_timeout=0.3) as served:
        client = await served.send(completion("too long", max_tokens=MANY))
        with anyio.fail_after(GUARD):
            answer = await client.answer()
        assert answer.status == 504
        assert b"deadline_exceeded" in answer.body
        client.close()
        await served.until_idle()


async def test_a_deadline_after_the_first_byte_is_an_error_event_and_no_clean_end() -> None:
    async with serving(seconds_per_pass=PASS, slots=1, grace=0.0, request_timeout=0.5) as served:
        client = await served.send(completion("too long", max_tokens=MANY, stream=True))
        with anyio.fail_after(GUARD):
            answer = await client.answer()
        assert answer.status == 200
        assert b"deadline_exceeded" in answer.body.split(b"\n\n")[-2]
        assert b"[DONE]" not in answer.body
        client.close()
        await served.until_idle()


async def test_a_wait_in_the_queue_beyond_its_bound_is_503() -> None:
    async with serving(seconds_per_pass=PASS, slots=1, grace=0.0, queue_timeout=0.2) as served, served.slot_in_use():
        client = await served.send(completion("waits", max_tokens=5))
        with anyio.fail_after(GUARD):
            answer = await client.answer()
        assert answer.status == 503
        assert b"queue_timeout" in answer.body
        assert "retry-after" in answer.headers
        assert (await served.metrics()).waiting == 0
        client.close()
