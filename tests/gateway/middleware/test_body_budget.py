"""The memory of all request bodies: who waits, who does not, and who gives it back."""

import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from unittest import mock

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.apis.endpoint import AnyEndpoint
from gateway.middleware.body import read_body
from gateway.middleware.body_budget import FREE, Body, BodyBudget
from gateway.middleware.caller import Caller, caller_of
from gateway.middleware.limits import RequestLimits
from gateway.middleware.request_scope import RequestScope
from gateway.preparation.preparer import InlinePreparer
from gateway.server.limits import ServerLimits
from tests.backends import ON_VIRTUAL_CLOCK
from tests.gateway.application import NAME, app_of
from tests.gateway.asgi import AsgiCall
from tests.gateway.chat import templates
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.server.apps import OK, chunk, hello
from tests.gateway.server.sockets import Client, Site, get, post, serving

pytestmark = pytest.mark.anyio

LARGE = 1000
"""Bytes that a body takes from the budget."""


@asynccontextmanager
async def growing(body: Body, size: int) -> AsyncIterator[anyio.Event]:
    """Ask for `size` bytes in a task, and yield the event of their grant."""
    granted = anyio.Event()

    async def grow() -> None:
        await body.grow(size)
        granted.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(grow)
            await anyio.wait_all_tasks_blocked()
            yield granted
            tasks.cancel_scope.cancel()


async def test_the_first_bytes_of_each_body_need_no_budget() -> None:
    budget = BodyBudget(limit=0)
    bodies = [Body(budget) for _ in range(100)]
    for body in bodies:
        await body.grow(FREE)
    assert budget.used == 0


async def test_a_body_takes_what_it_grows_and_gives_all_back() -> None:
    budget = BodyBudget(limit=10_000)
    body = Body(budget)
    await body.grow(FREE - 10)
    await body.grow(110)
    await body.grow(50)
    assert budget.used == body.charged == 150
    body.complete(b"whole")
    assert (budget.used, body.data) == (150, b"whole")
    body.release()
    body.release()
    assert (budget.used, body.charged, body.data) == (0, 0, b"")


async def test_a_body_beyond_the_budget_waits_for_the_release_of_another() -> None:
    budget = BodyBudget(limit=LARGE)
    first, second = Body(budget), Body(budget)
    await first.grow(FREE + LARGE)
    async with growing(second, FREE + 1) as granted:
        assert not granted.is_set()
        first.complete(b"")
        await anyio.wait_all_tasks_blocked()
        assert not granted.is_set()
        first.release()
        await granted.wait()
    assert budget.used == 1


async def test_bodies_get_their_bytes_in_the_order_of_asking() -> None:
    """A small want does not overtake a large one."""
    budget = BodyBudget(limit=LARGE)
    holder, large, small = Body(budget), Body(budget), Body(budget)
    await holder.grow(FREE + LARGE // 2)
    async with growing(large, FREE + LARGE) as large_granted, growing(small, FREE + 1) as small_granted:
        assert not large_granted.is_set()
        assert not small_granted.is_set()
        holder.release()
        await large_granted.wait()
        assert not small_granted.is_set()
        large.release()
        await small_granted.wait()


async def test_bodies_that_wait_for_each_other_cannot_block() -> None:
    """The oldest may exceed the limit by one body, and only that one."""
    budget = BodyBudget(limit=LARGE, largest_body=LARGE)
    old, young = Body(budget), Body(budget)
    await old.grow(FREE + LARGE // 2)
    await young.grow(FREE + LARGE // 2)
    async with growing(young, LARGE // 2) as young_granted:
        with anyio.fail_after(20):
            await old.grow(LARGE // 2)
        assert budget.used == LARGE + LARGE // 2
        assert not young_granted.is_set()
        old.release()
        await young_granted.wait()


@pytest.mark.parametrize("end", [lambda body: body.complete(b""), Body.release], ids=["whole", "released"])
async def test_the_next_body_may_exceed_the_limit_once_the_oldest_has_ended(end: Callable[[Body], None]) -> None:
    budget = BodyBudget(limit=LARGE, largest_body=LARGE)
    oldest = Body(budget)
    await oldest.grow(FREE + 1)
    async with growing(Body(budget), FREE + LARGE + 1) as granted:
        assert not granted.is_set()
        end(oldest)
        await anyio.wait_all_tasks_blocked()
        assert granted.is_set()


async def test_an_exceeded_budget_is_not_exceeded_again() -> None:
    """Bodies that are whole but still in use count, so that one after the other cannot take the reserve."""
    budget = BodyBudget(limit=LARGE, largest_body=LARGE)
    for _ in range(2):
        whole = Body(budget)
        await whole.grow(FREE + LARGE)
        whole.complete(b"")
    async with growing(Body(budget), FREE + 1) as granted:
        assert not granted.is_set()
    assert budget.used == 2 * LARGE


@pytest.mark.parametrize("released", [True, False])
async def test_a_cancelled_wait_takes_nothing_and_delays_no_other(released: bool) -> None:
    budget = BodyBudget(limit=LARGE)
    holder, leaving, next_one = Body(budget), Body(budget), Body(budget)
    await holder.grow(FREE + LARGE)
    async with growing(leaving, FREE + LARGE):
        pass
    if released:
        leaving.release()
    async with growing(next_one, FREE + LARGE) as granted:
        holder.release()
        await anyio.wait_all_tasks_blocked()
        assert granted.is_set()
    assert (leaving.charged, budget.used) == (0, LARGE)


async def test_a_cancelled_wait_lets_the_next_one_go_on_at_once() -> None:
    budget = BodyBudget(limit=LARGE)
    holder, leaving, next_one = Body(budget), Body(budget), Body(budget)
    until_cancelled = anyio.CancelScope()

    async def wait() -> None:
        with until_cancelled:
            await leaving.grow(FREE + LARGE)

    await holder.grow(FREE + LARGE // 2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        async with growing(next_one, FREE + 1) as granted:
            assert not granted.is_set()
            until_cancelled.cancel()
            await anyio.wait_all_tasks_blocked()
            assert granted.is_set()


class Arrived:
    """A body that has arrived as a whole before it is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def on_disconnect(self, _call: object) -> None:
        """Do nothing: the client stays."""

    def take_body(self, limit: int) -> bytes | None:
        return self.data if len(self.data) <= limit else None

    async def receive(self) -> Message:
        return {"type": "http.request", "body": self.data}


@pytest.mark.parametrize(("size", "charged"), [(FREE, 0), (FREE + 1, 1)])
async def test_a_large_body_takes_its_memory_also_if_it_has_arrived_as_a_whole(size: int, charged: int) -> None:
    budget, arrived = BodyBudget(limit=LARGE), Arrived(bytes(size))
    body = Body(budget)
    await read_body([], arrived.receive, body, RequestLimits(), arrivals=arrived)
    assert (len(body.data), budget.used) == (size, charged)


# Over sockets


class Holding:
    """Answers with the size of the body once it is released, and keeps the body until then."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.release = anyio.Event()
        self.entered = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await hello(scope, receive, send)
            return
        self.callers.append(caller_of(scope))
        self.entered.set()
        size = len((await receive())["body"])
        await self.release.wait()
        await send(OK)
        await send(chunk(b"%d" % size, more=False))


def limited(app: object, budget: BodyBudget, **limits: float) -> RequestScope:
    return RequestScope(app, RequestLimits(**limits), budget=budget)  # type: ignore[arg-type]


LARGE_REQUEST = post(b"x" * (FREE + LARGE))


@asynccontextmanager
async def exhausted(budget: BodyBudget, **limits: float) -> AsyncIterator[tuple[Site, Holding, Client]]:
    """Serve, with a client whose body takes the whole budget until the application is released."""
    app = Holding()
    async with serving(limited(app, budget, **limits), ServerLimits(linger=0.05)) as site:
        first = site.client()
        await first.send(LARGE_REQUEST)
        await app.entered.wait()
        yield site, app, first


async def test_a_large_request_waits_for_memory_and_a_small_one_does_not() -> None:
    budget = BodyBudget(limit=LARGE)
    async with exhausted(budget) as (site, app, first):
        second = site.client()
        await second.send(LARGE_REQUEST)
        assert (await site.ask(get("/health"))).status == 200
        small = site.client()
        small.write(post(b"x" * 100))
        while len(app.callers) < 2:
            await anyio.lowlevel.checkpoint()
        assert budget.used == LARGE
        app.release.set()
        for client, size in ((first, FREE + LARGE), (second, FREE + LARGE), (small, 100)):
            assert (await client.answer()).body == b"%d" % size
    assert budget.used == 0


async def test_a_wait_for_memory_is_a_503_and_no_408() -> None:
    async with exhausted(BodyBudget(limit=LARGE), memory_timeout=0.1) as (site, app, first):
        answer = await site.ask(LARGE_REQUEST)
        error = orjson.loads(answer.body)["error"]
        assert (answer.status, error["code"], error["type"]) == (503, "body_budget_exhausted", "server_error")
        assert (answer.headers["connection"], answer.headers["retry-after"]) == ("close", "2")
        app.release.set()
        assert (await first.answer()).status == 200


@ON_VIRTUAL_CLOCK
async def test_the_wait_for_memory_does_not_count_as_the_clients_time() -> None:
    """The last byte comes when the body's time has passed, most of it in the queue."""
    limits = RequestLimits(body_timeout=60, memory_timeout=60)
    budget = BodyBudget(limit=LARGE)
    holder, waiting = Body(budget), Body(budget)
    await holder.grow(FREE + LARGE)
    begun = anyio.current_time()
    parts = iter([(0, b"x" * (FREE + LARGE - 1)), (45, b"x")])

    async def receive() -> Message:
        pause, part = next(parts)
        await anyio.sleep(pause)
        return {"type": "http.request", "body": part, "more_body": len(part) > 1}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_body, [], receive, waiting, limits)
        await anyio.sleep(45)
        holder.release()
    assert (len(waiting.data), anyio.current_time() - begun) == (FREE + LARGE, 90)


async def test_a_client_that_leaves_in_the_queue_takes_no_memory() -> None:
    budget = BodyBudget(limit=LARGE)
    async with exhausted(budget) as (site, app, first):
        leaving = site.client()
        await leaving.send(LARGE_REQUEST[:-1])
        leaving.close()
        app.release.set()
        await first.answer()
        first.close()
        await site.server.count_falls_to(0)
    assert budget.used == 0


@pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["close", "reset"])
@pytest.mark.parametrize("unsent", [-1, None], ids=["a byte is missing", "all is sent"])
async def test_a_hang_up_is_noticed_while_the_body_waits_for_memory(
    leave: Callable[[Client], None], unsent: int | None
) -> None:
    budget = BodyBudget(limit=LARGE)
    async with exhausted(budget) as (site, app, first):
        leaving = site.client()
        await leaving.send(LARGE_REQUEST[:unsent])
        await anyio.wait_all_tasks_blocked()
        leave(leaving)
        await site.server.count_falls_to(1)
        assert len(app.callers) == 1
        app.release.set()
        assert (await first.answer()).status == 200


# The bytes


async def test_nothing_keeps_the_bytes_once_the_body_is_released() -> None:
    counts: list[tuple[int, int]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        data, mine = (await receive())["body"], bytes(70_000)
        caller_of(scope).release_body()
        counts.append((sys.getrefcount(data), sys.getrefcount(mine)))
        await hello(scope, empty, send)

    async def empty() -> dict[str, object]:
        return {"body": b""}

    async with serving(limited(app, BodyBudget())) as site:
        await site.ask(post(b"x" * 70_000))
    [(of_data, of_mine)] = counts
    assert of_data == of_mine


async def test_there_is_one_copy_of_a_body_while_it_is_read() -> None:
    size, piece = 16 << 20, 64 << 10
    parts = iter(range(size // piece))

    async def receive() -> Message:
        await anyio.lowlevel.checkpoint()
        number = next(parts)
        return {"type": "http.request", "body": bytes(piece), "more_body": number < size // piece - 1}

    body = Body()
    tracemalloc.start()
    try:
        await read_body([], receive, body, RequestLimits(body=size))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(body.data) == size
    assert peak < 1.3 * size


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/embeddings", {"input": "x"}),
        ("/tokenize", {"content": "x"}),
        ("/detokenize", {"tokens": [97]}),
        ("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
async def test_a_request_that_the_engine_has_keeps_no_budget(path: str, fields: dict[str, object]) -> None:
    engine = FakeEngine()
    engine.answers = anyio.Event()
    budget = BodyBudget()
    with mock.patch("gateway.app.BodyBudget", return_value=budget):
        app = app_of(engine, chat_template=templates.CHATML)
    call = AsgiCall(app, path, orjson.dumps(fields) + b" " * 70_000)
    with mock.patch.object(budget, "take", wraps=budget.take) as take, anyio.fail_after(20):
        async with call.running():
            await engine.asked.wait()
            take.assert_called()
            assert budget.used == 0
            engine.answers.set()
    assert call.status == 200, call.content


@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
async def test_a_running_request_keeps_neither_its_body_nor_its_budget(path: str) -> None:
    bodies: list[bytes] = []
    callers: list[Caller] = []
    read = InlinePreparer.read

    async def noting(
        self: InlinePreparer, caller: Caller, endpoint: AnyEndpoint, headers: Mapping[str, str], raw: bytes
    ) -> object:
        bodies.append(raw)
        callers.append(caller)
        return await read(self, caller, endpoint, headers, raw)

    engine = FakeEngine(lambda generation: generation.start())
    body = orjson.dumps({"model": NAME, "stream": True, "prompt": "x" * 70_000})
    call = AsgiCall(app_of(engine), path, body)
    with mock.patch.object(InlinePreparer, "read", noting), anyio.fail_after(20):
        async with call.running():
            while not engine.generations:
                assert not call.complete, call.content
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            (generation,) = engine.generations
            (caller,) = callers
            assert (caller.body.data, caller.body.charged) == (b"", 0)
            assert bodies == [body]
            references = sys.getrefcount(bodies[0])
            assert references == 2  # the list, and the argument of `getrefcount`
            assert not generation.ended
            call.hang_up()
