"""Cancellation at every await: the engine gets exactly one cancel, and none for an ended request."""

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from engine import Engine, EngineFault, EngineState, Finished, Generation, GenerationRequest
from tests.engine.client.harness import FOREVER, Scripted, ask, text, until
from tests.repeat import every_case

pytestmark = [pytest.mark.anyio, every_case]


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "engine.client")
    return caplog


def told(log: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the fields of every log line about a cancel."""
    return [vars(record) for record in log.records if record.message.startswith("request cancelled")]


@asynccontextmanager
async def cancelled(what: Callable[[], Any]) -> AsyncIterator[None]:
    """Start a task, run the body once all tasks are blocked, and then cancel the task."""
    async with anyio.create_task_group() as group:
        group.start_soon(what)
        await anyio.wait_all_tasks_blocked()
        yield
        group.cancel_scope.cancel()


def waiting_in(
    engine: Engine, request: GenerationRequest, wait: Callable[[Generation], Any], **how: Any
) -> Callable[[], Any]:
    """Return a function that enters a request and waits in it."""

    async def work() -> None:
        async with engine.generate(request, **how) as generation:
            await wait(generation)

    return work


async def stay(_: Generation) -> None:
    await anyio.sleep_forever()


# --- cancels at every await


@pytest.mark.parametrize(
    ("script", "wait", "phase"),
    [
        pytest.param("wait", stay, "intake", id="entering"),
        pytest.param("accept; wait", Generation.started, "queued", id="started"),
        pytest.param("accept; wait", Generation.take, "queued", id="take-queued"),
        pytest.param("accept; start; wait", Generation.take, "prefill", id="take-prefill"),
        pytest.param("accept; wait", Generation.outcomes, "queued", id="outcomes-queued"),
        pytest.param("accept; start; wait", Generation.outcomes, "prefill", id="outcomes-prefill"),
        pytest.param("accept; start; say a; wait", Generation.outcomes, "decode", id="outcomes-decode"),
        pytest.param("accept; start; say a; wait", stay, "decode", id="body"),
    ],
)
async def test_a_cancelled_wait_sends_one_cancel_and_awaits_the_release(
    scripted: Scripted, log: pytest.LogCaptureFixture, script: str, wait: Callable[[Generation], Any], phase: str
) -> None:
    async with scripted.open() as engine:
        async with cancelled(waiting_in(engine, ask(script, name="mine"), wait, why=lambda: "the client hung up")):
            assert await scripted.saw(engine, "generate") == 1
            assert scripted.count("cancel") == 0
        assert scripted.count("end") == 1
        assert await scripted.saw(engine, "cancel") == 1
    (line,) = told(log)
    tokens = int(phase == "decode")
    assert (line["request_id"], line["reason"], line["phase"]) == ("mine", "the client hung up", phase)
    assert (line["tokens"], line["freed"]) == (tokens, 10 + tokens)
    assert line["ms"] >= 0


async def test_a_cancel_during_a_later_take_reports_the_tokens_taken_so_far(
    scripted: Scripted, log: pytest.LogCaptureFixture
) -> None:
    async def take_all(generation: Generation) -> None:
        while await generation.take():
            pass

    async with scripted.open() as engine:
        async with cancelled(waiting_in(engine, ask("accept; start; say a; say b; wait"), take_all)):
            await engine.inspect()
        assert await scripted.saw(engine, "cancel") == 1
    assert told(log)[0]["tokens"] == 2


async def test_leaving_by_an_exception_cancels_too(scripted: Scripted, log: pytest.LogCaptureFixture) -> None:
    async with scripted.open() as engine:
        with pytest.raises(ZeroDivisionError):
            async with engine.generate(ask("accept; start; wait")):
                raise ZeroDivisionError
        assert scripted.count("cancel") == 1
    assert len(told(log)) == 1


async def test_leaving_with_one_choice_still_open_cancels(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        async with engine.generate(ask("accept; finish; say b 1; wait", n=2)) as generation:
            assert isinstance((await generation.take())[0], Finished)
        assert await scripted.saw(engine, "cancel") == 1


async def test_a_cancel_before_the_first_wait_reaches_the_engine(scripted: Scripted) -> None:
    """The request is already sent when the first checkpoint raises the cancellation."""
    async with scripted.open() as engine:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await text(engine, "accept; start; wait")
        assert await scripted.saw(engine, "generate") == scripted.count("cancel") == scripted.count("end") == 1


async def test_leaving_twice_cancelled_still_waits_for_the_release(scripted: Scripted) -> None:
    """Cancelled while leaving, and again by an outer scope: the exit waits for the engine's release."""
    request = ask("accept; start; on-cancel say x; wait")
    left = anyio.Event()

    async def work() -> None:
        try:
            await waiting_in(engine, request, stay)()
        finally:
            left.set()

    async with scripted.open() as engine, anyio.create_task_group() as outer, anyio.create_task_group() as inner:
        inner.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        await engine.inspect()
        inner.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            while await scripted.saw(engine, "cancel") == 0:
                await anyio.lowlevel.checkpoint()
            outer.cancel_scope.cancel()
            await anyio.wait_all_tasks_blocked()
            assert not left.is_set()
            scripted.kill()
            await left.wait()
    assert scripted.count("cancel") == 1


# --- ended requests are not cancelled


@pytest.mark.parametrize(
    "script", ["accept; finish", "accept; start; say a; finish", "accept; start; fail"], ids=["short", "said", "failed"]
)
async def test_leaving_an_ended_request_sends_no_frame(
    scripted: Scripted, log: pytest.LogCaptureFixture, script: str
) -> None:
    async with scripted.open() as engine:
        async with engine.generate(ask(f"accept; wait; {script}")):
            await text(engine, "accept; resume; finish")
        assert await scripted.saw(engine, "cancel") == 0
    assert told(log) == []


async def test_leaving_a_refused_request_sends_no_frame(scripted: Scripted, log: pytest.LogCaptureFixture) -> None:
    async with scripted.open() as engine:
        with pytest.raises(EngineFault):
            await text(engine, "refuse EngineFault")
        assert await scripted.saw(engine, "cancel") == 0
    assert told(log) == []


async def test_leaving_a_request_of_a_dead_engine_sends_no_frame(
    scripted: Scripted, log: pytest.LogCaptureFixture
) -> None:
    async with scripted.open() as engine:
        async with engine.generate(ask("accept; say a; wait")) as generation:
            await generation.take()
            scripted.kill()
            with pytest.raises(EngineFault):
                await generation.take()
        await engine.ready()
        assert await scripted.saw(engine, "cancel") == 0
    assert told(log) == []


# --- cancels concurrent with other events


@pytest.mark.parametrize("choices", [1, 3])
async def test_a_cancel_that_crosses_with_the_end_awaits_its_release(
    scripted: Scripted, log: pytest.LogCaptureFixture, choices: int
) -> None:
    """The end arrives first and does not release the request: the answer to the cancel is still awaited."""
    async with scripted.open() as engine:
        async with engine.generate(ask("accept; start; on-cancel cross; wait", n=choices)):
            pass
        assert await scripted.saw(engine, "cancel") == scripted.count("end") == 1
        assert await text(engine, "accept; say well; finish") == "well"
    (line,) = told(log)
    assert (line["phase"], line["tokens"]) == ("gone", choices)


async def test_events_after_the_release_are_dropped(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        async with engine.generate(ask("accept; start; on-cancel late; wait")):
            pass
        assert await text(engine, "accept; say well; finish") == "well"
        assert scripted.count("cancel") == 1


async def test_an_engine_that_does_not_release_is_not_awaited_for_ever(
    scripted: Scripted, log: pytest.LogCaptureFixture
) -> None:
    async with scripted.open(answer_timeout=0.05) as engine:
        async with engine.generate(ask("accept; start; on-cancel ignore; wait")):
            pass
        assert await text(engine, "accept; say well; finish") == "well"
        assert scripted.count("cancel") == 1
    (line,) = told(log)
    assert (line["levelname"], line["message"]) == ("WARNING", "request cancelled, but not released in time")


async def test_the_death_of_the_engine_releases_a_cancelled_request(
    scripted: Scripted, log: pytest.LogCaptureFixture
) -> None:
    async with scripted.open(answer_timeout=FOREVER) as engine:
        async with engine.generate(ask("accept; start; on-cancel die SIGKILL; wait")):
            pass
        await engine.ready()
        assert len(scripted.keys()) == scripted.count("cancel") == 1
    (line,) = told(log)
    assert line["phase"] == "dead"


async def test_a_request_that_waits_for_its_replay_leaves_at_once(
    scripted: Scripted, log: pytest.LogCaptureFixture
) -> None:
    async with scripted.open(restarts=False) as engine, engine.generate(ask("accept; start; wait")):
        await scripted.killed(engine)
    assert scripted.count("cancel") == 0
    (line,) = told(log)
    assert (line["phase"], line["tokens"], line["freed"]) == ("restarting", 0, 0)


async def test_a_request_that_waits_for_its_replay_in_entering_leaves_at_once(scripted: Scripted) -> None:
    async with scripted.open(restarts=False) as engine, cancelled(waiting_in(engine, ask("die SIGKILL"), stay)):
        await until(engine, EngineState.RESTARTING)
    assert scripted.count("cancel") == 0


async def test_a_replayed_request_is_cancelled_under_its_new_key(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        async with engine.generate(ask("accept; start; wait")):
            await scripted.killed(engine)
            await engine.ready()
            await engine.inspect()
        _, new = scripted.keys()
        assert [line for line in scripted.lines() if line.startswith("cancel")] == [f"cancel {new}"]


async def test_a_query_of_the_slots_can_be_cancelled(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        os.kill(scripted.pids()[-1], signal.SIGSTOP)
        async with cancelled(engine.inspect):
            pass
        os.kill(scripted.pids()[-1], signal.SIGCONT)
        assert (await engine.inspect())[1].slots == 4


@pytest.mark.parametrize("method", ["ready", "status_changed"])
async def test_waiting_for_the_engine_can_be_cancelled(scripted: Scripted, method: str) -> None:
    async with scripted.open("slow", ready=False) as engine:
        async with cancelled(getattr(engine, method)):
            pass
        assert engine.status.state is EngineState.LOADING


async def test_a_cancel_after_any_number_of_turns_releases_the_request(scripted: Scripted) -> None:
    """Wherever the cancellation occurs, the engine holds nothing afterwards and received at most one cancel."""
    async with scripted.open() as engine:
        for turns in range(40):
            async with anyio.create_task_group() as group:
                group.start_soon(text, engine, "accept; start; say a; say b; finish")
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        _, metrics = await engine.inspect()
    assert metrics.held == 0
    assert sorted(line.split()[1] for line in scripted.lines() if line.startswith("end")) == sorted(scripted.keys())
    cancels = [line for line in scripted.lines() if line.startswith("cancel")]
    assert len(cancels) == len(set(cancels))


# --- the origins and reasons of cancels


async def test_the_reason_of_a_cancel_is_read_when_it_is_known(
    scripted: Scripted, log: pytest.LogCaptureFixture
) -> None:
    closing: list[str] = []
    async with scripted.open() as engine, engine.generate(ask("accept; wait"), why=lambda: closing[-1]):
        closing.append("deadline passed")
    assert told(log)[0]["reason"] == "deadline passed"


async def test_cancelling_the_owner_of_the_engine_releases_its_requests_first(
    scripted: Scripted, log: pytest.LogCaptureFixture
) -> None:
    """The living engine releases the requests first; only then it is ended."""
    with anyio.CancelScope() as scope:
        async with scripted.open() as engine, engine.generate(ask("accept; start; wait"), why=lambda: "shutdown"):
            scope.cancel()
            await anyio.sleep_forever()
    assert [line.split()[0] for line in scripted.lines()][-3:] == ["cancel", "end", "eof"]
    (line,) = told(log)
    assert (line["phase"], line["reason"]) == ("prefill", "shutdown")


async def test_requests_that_leave_at_once_are_each_cancelled_once(
    scripted: Scripted, log: pytest.LogCaptureFixture
) -> None:
    async with scripted.open() as engine:
        async with anyio.create_task_group() as group:
            for number in range(40):
                request = ask("accept; start; say a; wait" if number % 2 else "accept; wait", name=f"r{number}")
                group.start_soon(waiting_in(engine, request, stay))
            while await scripted.saw(engine, "generate") < 40:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        cancels = sorted(line.split()[1] for line in scripted.lines() if line.startswith("cancel"))
        assert cancels == sorted(line.split()[1] for line in scripted.lines() if line.startswith("generate"))
        assert scripted.count("end") == 40
        assert (await engine.inspect())[1].held == 0
    assert sorted(line["request_id"] for line in told(log)) == sorted(f"r{number}" for number in range(40))
