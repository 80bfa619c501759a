"""Connections beyond the limit: a new client gets the place of an idle one, and never that of a request."""

import socket

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Receive, Scope, Send

from gateway.server.limits import ServerLimits
from gateway.server.places import Places
from gateway.server.turns import Turns
from tests.gateway.server.apps import hello, scoped
from tests.gateway.server.sockets import get, post, serving

pytestmark = pytest.mark.anyio


class Waiting:
    """Answers each request once it is released."""

    def __init__(self) -> None:
        self.release = anyio.Event()
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.running += 1
        await self.release.wait()
        await hello(scope, receive, send)


async def test_a_client_beyond_the_limit_waits_for_the_end_of_a_request() -> None:
    app = Waiting()
    async with serving(scoped(app), ServerLimits(connections=2, idle_grace=0)) as site:
        busy = [site.client() for _ in range(2)]
        for client in busy:
            client.write(post(b"in"))
        while app.running < len(busy):
            await anyio.lowlevel.checkpoint()
        late = site.client()
        late.write(post(b"waited"))
        with anyio.move_on_after(0.05) as early:
            await late.receive()
        assert early.cancelled_caught
        assert (len(site.server.connections), app.running) == (2, 2)
        app.release.set()
        assert (await late.answer()).body == b"/ waited"
        assert [(await client.answer()).body for client in busy] == [b"/ in", b"/ in"]


async def test_a_client_keeps_its_place_while_its_large_head_waits_for_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, turn = anyio.Event(), anyio.Event()

    async def wait(_turns: Turns) -> None:
        waits.set()
        await turn.wait()

    monkeypatch.setattr(Turns, "next", wait)
    async with serving(scoped(hello), ServerLimits(connections=1, idle_grace=0)) as site:
        first, late = site.client(), site.client()
        first.write(get("/first", headers=f"a: {'x' * 60_000}\r\n"))
        await waits.wait()
        late.write(get("/late"))
        await anyio.wait_all_tasks_blocked()
        turn.set()
        assert [(await client.answer()).body for client in (first, late)] == [b"/first ", b"/late "]


async def test_idle_clients_do_not_keep_a_new_one_out() -> None:
    """Far more idle connections than places, with a keep-alive timeout that never passes."""
    limits = ServerLimits(connections=10, keep_alive_timeout=1000, idle_grace=0)
    async with serving(scoped(hello), limits, listener=backlog()) as site:
        idle = [site.client() for _ in range(100)]
        assert (await site.ask(post(b"late"))).body == b"/ late"
        await site.server.count_falls_to(10)
        assert await idle[0].is_closed()


async def test_a_connection_that_the_server_has_finished_makes_room() -> None:
    async with serving(scoped(hello), ServerLimits(connections=1, idle_grace=0, linger=1000)) as site:
        first = site.client()
        first.write(get(headers="connection: close\r\n"))
        await first.answer()
        assert (await site.ask(get("/new"))).body == b"/new "


async def test_the_longest_idle_connection_is_closed_first() -> None:
    async with serving(scoped(hello), ServerLimits(connections=2, keep_alive_timeout=1000, idle_grace=0)) as site:
        first, second = site.client(), site.client()
        for client in (second, first):
            client.write(get())
            await client.answer()
        assert (await site.ask(get("/new"))).body == b"/new "
        assert await second.is_closed()
        first.write(get("/still"))
        assert (await first.answer()).body == b"/still "


async def test_the_reason_of_an_evicted_connection() -> None:
    async with serving(scoped(hello), ServerLimits(connections=1, keep_alive_timeout=1000, idle_grace=0)) as site:
        first = site.client()
        first.write(get())
        await first.answer()
        (connection,) = site.server.connections
        await site.ask(get())
        assert connection.reason == "the server needed room for another client"


class Connection:
    """An idle connection that stays open as long as it `has_input`."""

    def __init__(self, *, has_input: bool = False) -> None:
        self.has_input = has_input
        self.closed = False

    def close_idle(self) -> bool:
        self.closed = not self.has_input
        return self.closed


async def test_a_connection_whose_request_has_arrived_keeps_its_place() -> None:
    places = Places(2, idle_grace=0)
    arrived, idle = Connection(has_input=True), Connection()
    for connection in (arrived, idle):
        await places.take()
        places.set_idle(connection, True)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(places.take)
            await anyio.wait_all_tasks_blocked()
            assert (arrived.closed, idle.closed) == (False, True)


async def test_a_new_connection_has_time_to_send_its_request() -> None:
    places = Places(1, idle_grace=1000)
    young = Connection()
    await places.take()
    places.set_idle(young, True)
    assert await is_full(places)
    assert not young.closed


async def test_a_connection_without_a_request_in_its_time_makes_room() -> None:
    places = Places(1, idle_grace=0.05)
    silent = Connection()
    await places.take()
    places.set_idle(silent, True)
    with anyio.fail_after(20):
        await places.take()
    assert silent.closed


async def is_full(places: Places) -> bool:
    with anyio.move_on_after(0.01) as waited:
        await places.take()
    return waited.cancelled_caught


async def test_a_closed_connection_gives_its_place_once() -> None:
    places = Places(2, idle_grace=0)
    idle = [Connection() for _ in range(2)]
    for connection in idle:
        await places.take()
        places.set_idle(connection, True)
    with anyio.fail_after(20):
        await places.take()
    assert [connection.closed for connection in idle] == [True, False]
    places.set_idle(idle[1], False)
    places.set_idle(idle[0], True)
    assert await is_full(places)
    places.leave(idle[0])
    assert await is_full(places)
    assert not places._closed
    places.leave(idle[1])
    assert not await is_full(places)


async def test_an_idle_connection_that_leaves_gives_its_place_once() -> None:
    places, idle = Places(1, idle_grace=0), Connection()
    await places.take()
    places.set_idle(idle, True)
    places.leave(idle)
    await places.take()
    assert await is_full(places)


async def test_a_place_that_is_left_goes_to_any_of_the_clients_that_wait() -> None:
    places, served = Places(1, idle_grace=0), list[int]()

    async def take(number: int) -> None:
        await places.take()
        served.append(number)

    with anyio.fail_after(20):
        await places.take()
        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(take, number)
            await anyio.wait_all_tasks_blocked()
            for count in (1, 2):
                places.leave(Connection())
                await anyio.wait_all_tasks_blocked()
                assert len(served) == count


async def test_leaving_the_accept_loop_closes_a_client_that_waits() -> None:
    app = Waiting()
    async with serving(scoped(app), ServerLimits(connections=1, idle_grace=0, grace=0, close_timeout=0)) as site:
        busy, late = site.client(), site.client()
        busy.write(get())
        while not app.running:
            await anyio.lowlevel.checkpoint()
        site.shutdown.set()
        assert await late.is_closed()


def backlog() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener
