"""Progress of the engine process, and its end without any: watched with real processes, and message by message."""

from contextlib import suppress
from typing import cast

import anyio
import pytest

from engine import Engine, EngineConfig, EngineFault, EngineState, EngineStatus, Supervision, Unavailable
from engine.client.process import EngineProcess
from engine.client.repack_cache import RepackCache
from engine.client.supervisor import Supervisor, _Session
from engine.events import Finished, Text
from engine.info import EngineMetrics, ModelInfo
from engine.protocol.messages import Answered, Inspected, Loaded, Loading, Message, Step, ToEngine, Working
from tests.engine.client.harness import FOREVER, GUARD, Scripted, ask, text, until

pytestmark = pytest.mark.anyio

SERVES = "accept; say well; finish"


@pytest.mark.parametrize(
    ("message", "progress_at"),
    [
        (Working(), 50),
        (Loading(0.6), 50),
        (Loading(0.5), 10),  # no more than before
        (Step((), EngineMetrics(steps=4)), 50),
        (Step((), EngineMetrics(steps=3)), 10),
        (Answered(1, Inspected((), EngineMetrics(steps=4))), 50),
        (Answered(1, Inspected((), EngineMetrics(steps=3))), 10),
    ],
)
async def test_progress_is_a_step_work_of_the_intake_or_more_of_the_model(message: Message, progress_at: int) -> None:
    supervisor = Supervisor(EngineConfig(model="m"), [], Supervision())
    supervisor.board.post(EngineStatus(EngineState.LOADING, "The model is loading.", 0.5, 0))
    session = _Session(process=cast("EngineProcess", None), progress_at=10, steps=3)
    supervisor._receive(session, message, now=50, last=True)
    assert session.progress_at == progress_at


async def tokenize(engine: Engine, script: str) -> None:
    await engine.tokenize([script], special=True, begin=False, take=lambda _part: None)


async def until_ping(engine: Engine, *, waits: bool) -> None:
    """Wait until a ping waits for its answer, or until none does."""
    while (engine._supervisor.queries.pinged_at is not None) is not waits:
        await anyio.lowlevel.checkpoint()


class Received:
    """A process whose messages have all come at once."""

    def __init__(self, *messages: Message) -> None:
        self.batches = [list(messages), []]

    async def receive(self) -> list[Message]:
        return self.batches.pop(0)

    def send(self, message: ToEngine) -> None:
        raise AssertionError(message)


@pytest.mark.parametrize("repacked", [True, False])
async def test_only_weights_that_were_repacked_say_that_repacking_works(*, repacked: bool) -> None:
    supervisor = Supervisor(EngineConfig(model="m"), [], Supervision())
    session = _Session(process=cast("EngineProcess", Received()), progress_at=0)
    model = ModelInfo("m", 256, 1024, 1024, 4, 0, 0, repacked=repacked)
    supervisor._receive(session, Loaded(model), now=1, last=True)
    assert RepackCache().works() is (True if repacked else None)


async def test_readers_take_the_texts_of_steps_together_that_came_together() -> None:
    supervisor = Supervisor(EngineConfig(model="m"), [], Supervision())
    supervisor.exchange.connect(lambda _message: None)
    mailbox = supervisor.exchange.open(ask(SERVES), None)
    taken: list[list[Text | Finished]] = []
    mailbox.pass_on(lambda _text: True)

    async def read() -> None:
        taken.append(await mailbox.take())

    hello, metrics = (mailbox.key or 0, Text(0, "hello")), EngineMetrics()
    process = Received(*(Step((hello,), metrics) for _ in range(3)))
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            await supervisor._read(_Session(process=cast("EngineProcess", process), progress_at=0))
    assert taken == [[hello[1]] * 3]


async def test_an_engine_that_finishes_no_step_is_killed_and_replaced(scripted: Scripted) -> None:
    states: list[EngineState] = []

    async def watch() -> None:
        status = engine.status
        while True:
            status = await engine.status_changed(status)
            states.append(status.state)

    async with scripted.open(stall_timeout=0.5) as engine, anyio.create_task_group() as group:
        group.start_soon(watch)
        with pytest.raises(EngineFault, match="died"):
            await text(engine, "accept; start; hang")
        await engine.ready()
        assert await text(engine, SERVES) == "well"
        group.cancel_scope.cancel()
    served = [state for state in states if state is not EngineState.RESTARTING]
    assert served == [EngineState.STALLED, EngineState.READY] * 2


async def test_a_process_that_survives_its_kill_is_abandoned_and_replaced(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is blocked in a driver. Its pipes stay open, too."""
    survivors: list[EngineProcess] = []
    async with scripted.open(stall_timeout=0.5, drain_timeout=0.0, kill_timeout=0.0) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(EngineProcess, "kill", lambda process: survivors.append(process))  # noqa: PLW0108
            assert await text(engine, "accept; start; hang | accept; say well; finish") == "well"
        engine._supervisor.limits = Supervision()
        survivors[0].kill()
        await survivors[0]._process.aclose()


@pytest.mark.parametrize("script", ["accept; start; hang", "accept; garbage; hang"])
async def test_an_engine_that_fails_is_not_given_time_to_end(scripted: Scripted, script: str) -> None:
    async with scripted.open(stall_timeout=0.5, drain_timeout=FOREVER) as engine:
        with pytest.raises(EngineFault):
            await text(engine, script)
        await engine.ready()


async def test_answers_of_an_engine_that_finishes_no_step_do_not_hide_it(scripted: Scripted) -> None:
    async def ask_on() -> None:
        with suppress(Unavailable):  # once the engine is ended
            while True:
                await engine.inspect()

    async with scripted.open(stall_timeout=0.5) as engine, anyio.create_task_group() as group:
        group.start_soon(ask_on)
        with pytest.raises(EngineFault, match="died"):
            await text(engine, "accept; start; wait")
        assert engine.status.restarts >= 1
        group.cancel_scope.cancel()


async def test_an_engine_may_say_that_its_intake_works(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        assert await text(engine, f"work; {SERVES}") == "well"
        assert engine.status.restarts == 0


async def test_an_unanswered_cancel_counts_as_work_for_the_stall_timeout(scripted: Scripted) -> None:
    async with scripted.open(stall_timeout=0.5, answer_timeout=0.0) as engine:
        async with engine.generate(ask("accept; on-cancel ignore; wait")):
            pass
        await until(engine, EngineState.STALLED)


async def test_an_engine_that_hangs_while_only_a_query_waits_is_killed_and_replaced(scripted: Scripted) -> None:
    async with scripted.open(stall_timeout=0.1) as engine:
        with pytest.raises(Unavailable, match="ended"):
            await tokenize(engine, "hang | done")
        assert "did not answer for 0.1 s" in engine.status.detail
        await engine.ready()
        await tokenize(engine, "done")


async def test_an_engine_that_lives_may_take_long_for_a_query(scripted: Scripted) -> None:
    """Time passes only while no ping waits for its answer."""
    time = 0.0
    async with scripted.open(stall_timeout=0.01, clock=lambda: time) as engine, anyio.create_task_group() as group:
        group.start_soon(tokenize, engine, "ignore")
        for _ in range(3):
            await until_ping(engine, waits=True)
            await until_ping(engine, waits=False)
            time += 1.0
        assert scripted.count("inspect") >= 3
        assert engine.status.restarts == 0
        group.cancel_scope.cancel()


async def test_time_in_which_the_clock_stands_still_is_no_stall_of_the_engine(scripted: Scripted) -> None:
    """The gateway's clock stands still while its own event loop is held up."""
    time = 0.0
    async with (
        scripted.open(stall_timeout=0.01, clock=lambda: time) as engine,
        engine.generate(ask("accept; start; wait")),
    ):
        with anyio.move_on_after(0.2):
            await engine.status_changed()
        assert engine.status.restarts == 0
        time = 1.0
        await until(engine, EngineState.STALLED)


async def test_an_idle_engine_is_left_alone(scripted: Scripted) -> None:
    async with scripted.open(stall_timeout=0.01) as engine:
        with anyio.move_on_after(0.2):
            await engine.status_changed()
        assert engine.status.state is EngineState.READY
        assert len(scripted.pids()) == 1
