"""Uploads share the event loop fairly: tiny chunks are joined, and connections read in turns."""

from collections.abc import Callable
from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.middleware.disconnect import arrivals_of, read_disconnect, wait_for_disconnect
from gateway.server.hypercorn import requests
from gateway.server.hypercorn.chunked import CHUNKS_PER_TURN
from gateway.server.hypercorn.framing import Framing
from gateway.server.limits import ServerLimits
from gateway.server.transport import RECEIVE_SIZE
from gateway.server.turns import Turns
from tests.gateway.server.apps import OK, chunk, hello, scoped
from tests.gateway.server.sockets import Client, get, post, serving

pytestmark = pytest.mark.anyio

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
TINY = b"1\r\nx\r\n"


def parts_of(framing: Framing) -> list[bytes]:
    parts = []
    while (part := framing.next_part()) is not None:
        parts.append(part)
    return parts


async def test_a_turn_joins_a_bounded_number_of_chunks() -> None:
    framing = Framing(RECEIVE_SIZE)
    framing.receive(HEAD)
    framing.next_part()
    count = RECEIVE_SIZE // len(TINY)
    framing.receive(TINY * count + b"0\r\n\r\n")
    *parts, last = parts_of(framing)
    assert last == b"0\r\n\r\n"
    assert len(parts) == -(-count // CHUNKS_PER_TURN)
    sizes = [int(part.partition(b"\r\n")[0], 16) for part in parts]
    assert sum(sizes) == count
    assert max(sizes) == CHUNKS_PER_TURN


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11])
async def test_chunks_may_be_cut_anywhere(size: int) -> None:
    body = HEAD + b'5\r\nhello\r\n6;a="b"\r\n world\r\n0\r\nt: u\r\n\r\n'
    framing = Framing(RECEIVE_SIZE)
    parts = []
    for start in range(0, len(body), size):
        framing.receive(body[start : start + size])
        parts += parts_of(framing)
    head, *chunks, last = parts
    assert (head, last) == (HEAD, b"0\r\n\r\n")
    assert b"".join(part.partition(b"\r\n")[2].removesuffix(b"\r\n") for part in chunks) == b"hello world"
    assert framing.is_between


async def test_every_other_task_runs_between_two_turns() -> None:
    turns = Turns()
    passes = 0
    seen: list[int] = []

    async def upload() -> None:
        for _ in range(10):
            await turns.next()
            seen.append(passes)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as neighbour:

            async def count() -> None:
                nonlocal passes
                while True:
                    passes += 1
                    await anyio.lowlevel.checkpoint()

            neighbour.start_soon(count)
            async with anyio.create_task_group() as uploads:
                for _ in range(20):
                    uploads.start_soon(upload)
            neighbour.cancel_scope.cancel()
    assert turns.granted == len(seen) == 200
    assert all(later > earlier for earlier, later in pairwise(seen))


async def test_turns_are_taken_in_the_order_of_asking() -> None:
    turns = Turns()
    order: list[int] = []

    async def upload(number: int) -> None:
        for _ in range(20):
            await turns.next()
            order.append(number)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as uploads:
            for number in range(5):
                uploads.start_soon(upload, number)
                await anyio.lowlevel.checkpoint()
    assert order[40:45] == order[45:50] == order[50:55]
    assert sorted(order[40:45]) == list(range(5))


async def test_a_cancelled_upload_gives_up_its_turn() -> None:
    turns = Turns()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await turns.next()
    with anyio.fail_after(20):
        await turns.next()
    assert turns.granted == 1


async def test_an_upload_in_tiny_chunks_takes_a_turn_for_each_part() -> None:
    """Between any two parts of it other connections run. The application gets joined messages, not chunks."""
    count = 100_000
    messages: list[Message] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        while not messages or messages[-1]["more_body"]:
            messages.append(await receive())
        await send(OK)
        await send(chunk(b"done", more=False))

    async with serving(app) as site:
        client = site.client()
        await client.send(HEAD + TINY * count + b"0\r\n\r\n")
        assert (await client.answer()).body == b"done"
        assert site.server.turns.granted >= count // CHUNKS_PER_TURN - 1
    assert b"".join(message["body"] for message in messages) == b"x" * count
    assert max(len(message["body"]) for message in messages) <= RECEIVE_SIZE + CHUNKS_PER_TURN


async def test_a_small_request_needs_no_turn() -> None:
    async with serving(scoped(hello)) as site:
        await site.ask(post(b"x" * 1000))
        await site.ask(HEAD + b"5\r\nhello\r\n0\r\n\r\n")
        await site.ask(get())
        assert site.server.turns.granted == 0


async def test_each_large_head_takes_a_turn() -> None:
    """To parse it takes as long as to read a part of an upload, so that heads of many clients hold up others, too."""
    async with serving(scoped(hello)) as site:
        for count in range(1, 4):
            await site.ask(get(headers=f"a: {'x' * 60_000}\r\n"))
            assert site.server.turns.granted >= count


async def test_a_body_is_read_no_further_than_the_application_receives() -> None:
    """The rest stays with the client."""
    limit = 100_000
    receives = anyio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receives.wait()
        size = 0
        while (message := await receive())["more_body"]:
            assert len(message["body"]) <= limit + RECEIVE_SIZE
            size += len(message["body"])
        await send(OK)
        await send(chunk(b"%d" % (size + len(message["body"])), more=False))

    async with serving(app, ServerLimits(unread=limit)) as site:
        client = site.client()
        size = 32 << 20
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.send, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(client.send, b"x" * size)
            await anyio.wait_all_tasks_blocked()
            receives.set()
            assert (await client.answer()).body == b"%d" % size


@pytest.mark.parametrize("leave", [Client.close, Client.reset, Client.half_close], ids=["close", "reset", "half-close"])
async def test_a_hang_up_behind_an_unread_body_is_noticed(
    leave: Callable[[Client], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is not read further, because the application receives nothing until the hang-up."""
    monkeypatch.setattr(requests, "HANG_UP_LOOK", 0.01)
    reasons: list[str] = []

    async def app(scope: Scope, receive: Receive, _send: Send) -> None:
        gone = anyio.Event()
        arrivals = arrivals_of(scope)
        assert arrivals is not None
        arrivals.on_disconnect(lambda _message: gone.set())
        await gone.wait()
        reasons.append(read_disconnect(await wait_for_disconnect(receive)).reason)

    async with serving(app, ServerLimits(unread=1000)) as site:
        client = site.client()
        await client.send(HEAD + TINY * 5_000)
        await anyio.wait_all_tasks_blocked()
        leave(client)
        await site.server.count_falls_to(0)
    assert reasons == ["client closed the connection"]


async def test_tiny_chunks_of_a_client_that_has_left_are_not_parsed() -> None:
    async with serving(scoped(hello)) as site:
        client = site.client()
        await client.send(HEAD + TINY)
        await anyio.wait_all_tasks_blocked()
        sent = client.sock.send(TINY * 200_000)
        client.reset()
        await site.server.count_falls_to(0)
        assert site.server.turns.granted < 5 < sent // len(TINY) // CHUNKS_PER_TURN


async def test_a_hang_up_is_noticed_though_others_upload() -> None:
    """A connection without an upload waits for no turn."""
    async with serving(scoped(hello)) as site:
        uploads = [site.client() for _ in range(5)]
        for client in uploads:
            client.write(HEAD + TINY)
        other = site.client()
        other.write(get())
        await other.answer()
        granted = site.server.turns.granted
        other.close()
        await site.server.count_falls_to(5)
        assert site.server.turns.granted == granted
