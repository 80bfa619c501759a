"""The gateway's work for a request is independent of the number of requests in flight and in the past."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from engine import Engine, EngineConfig, EngineState, EngineStatus, Supervision
from engine.client.exchange import Exchange
from engine.client.queries import Queries
from engine.client.supervisor import Supervisor
from engine.events import Event, Finished, FinishReason, Started, Text
from engine.info import EngineMetrics
from engine.protocol.codec import Decoder, encode
from engine.protocol.messages import Accepted, Answered, Generate, Inspect, Inspected, Step, ToEngine
from tests.backends import TRIO_FIRST
from tests.engine.client.harness import GUARD, ask
from tests.engine.work import Work, assert_same, blocks, counted, work_of

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", TRIO_FIRST)]

FEW, MANY = 10, 1000
ROWS, CLIENTS = 8, 20
METRICS = EngineMetrics(8, 0, 8, 0, 0, 0, 1, 0.1, 8, 8, 0)
END = Finished(0, "", FinishReason.STOP, 1, 0)


class Crowd:
    """An exchange with so many requests in flight; the last ones run."""

    def __init__(self, requests: int) -> None:
        self.exchange = Exchange(capacity=requests)
        self.exchange.connect(lambda _message: None)
        self.mailboxes = [self.exchange.open(ask(""), patience=5) for _ in range(requests)]
        self._decoder = Decoder()
        events: list[tuple[int, Event]] = [(requests - row, Text(0, "a")) for row in range(ROWS)]
        self._frame = encode(Step(tuple(events), METRICS))
        self.come_and_go()  # the first request begins an average, with less work
        self.read_step()  # the first text of a choice has none before it, and less work

    def read_step(self) -> None:
        for message in self._decoder.feed(self._frame):
            assert isinstance(message, Step)
            self.exchange.deliver(message.events, 0.0)

    def come_and_go(self) -> None:
        mailbox = self.exchange.open(ask(""), patience=5)
        assert mailbox.key is not None
        self.exchange.accept(Accepted(mailbox.key, (1,)))
        self.exchange.deliver([(mailbox.key, Started()), (mailbox.key, END)], 0.0)
        assert mailbox.ended


@pytest.mark.parametrize("what", [Crowd.read_step, Crowd.come_and_go])
async def test_concurrent_requests_add_no_work_to_an_event(what: Callable[[Crowd], None]) -> None:
    def work(requests: int) -> Work:
        crowd = Crowd(requests)
        return work_of(lambda: what(crowd))

    assert_same(work(FEW), work(MANY))


async def test_concurrent_queries_add_no_work_to_an_answer() -> None:
    async def work(askers: int) -> Work:
        queries = Queries()
        queries.connect(lambda _message: None)
        async with anyio.create_task_group() as tasks:
            for _ in range(askers):
                tasks.start_soon(queries.ask, Inspect())
            await anyio.wait_all_tasks_blocked()
            with counted() as work:
                queries.resolve(Answered(askers // 2, Inspected((), METRICS)))
                await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        return work

    assert (await work(FEW)).instructions == (await work(MANY)).instructions


class Echo:
    """Answers every request with a token in the next step."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._asked: list[int] = []
        self._wanted = anyio.Event()

    def send(self, message: ToEngine) -> None:
        assert isinstance(message, Generate)
        self._asked.append(message.key)
        self._wanted.set()

    async def run(self) -> None:
        exchange = self._supervisor.exchange
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            keys, self._asked = self._asked, []
            for key in keys:
                exchange.accept(Accepted(key, (1,)))
            exchange.deliver([(key, event) for key in keys for event in (Started(), Text(0, "a"), END)], 0.0)


@asynccontextmanager
async def open_echo() -> AsyncIterator[Engine]:
    """Start an engine without a process."""
    supervisor = Supervisor(EngineConfig(model="m"), [], Supervision())
    echo = Echo(supervisor)
    supervisor.board.post(EngineStatus(EngineState.READY, "", 1.0, 0))
    supervisor.exchange.connect(echo.send)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(echo.run)
        yield Engine(supervisor)
        tasks.cancel_scope.cancel()


async def serve(engine: Engine, requests: int) -> None:
    """Serve streams from clients that send their next request as soon as they have an answer."""

    async def be_a_client() -> None:
        for _ in range(requests // CLIENTS):
            async with engine.generate(ask("")) as generation:
                assert await generation.take() == [Text(0, "a"), END]

    async with anyio.create_task_group() as tasks:
        for _ in range(CLIENTS):
            tasks.start_soon(be_a_client)


async def test_past_requests_leave_no_memory_behind() -> None:
    with anyio.fail_after(GUARD):
        async with open_echo() as engine:
            await serve(engine, 1000)
            kept = blocks()
            await serve(engine, 9000)
            assert blocks() - kept < 100
