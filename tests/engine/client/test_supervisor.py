"""The life of the engine process: load, death, restart, stall and end, with real processes."""

import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest

from engine import (
    Busy,
    Engine,
    EngineConfig,
    EngineFault,
    EngineState,
    EngineStatus,
    LoadError,
    Supervision,
    Unavailable,
    open_engine,
)
from engine.client.process import EngineProcess, describe_exit
from engine.client.repack_cache import RepackCache
from engine.client.supervisor import Supervisor
from engine.environment import command_for
from tests.engine.client.harness import FOREVER, GUARD, Scripted, ask, text
from tests.threads import refuse_in_thread

pytestmark = pytest.mark.anyio

SERVES = "accept; say well; finish"


async def _told_unavailable(question: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(Unavailable):
        await question()


async def test_a_log_level_reaches_this_process_and_the_next(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        engine.set_log_level("debug")
        assert await scripted.saw(engine, "level debug") == 1
        with pytest.raises(EngineFault):
            await text(engine, "accept; start; say a; die SIGKILL")
        await engine.ready()
        assert await scripted.saw(engine, "level debug") == 2


async def test_a_log_level_may_change_while_the_model_loads(scripted: Scripted, tmp_path: Path) -> None:
    fifo = tmp_path / "load"
    os.mkfifo(fifo)
    async with scripted.open(f"after {fifo}", ready=False) as engine:
        engine.set_log_level("debug")
        await anyio.to_thread.run_sync(fifo.write_bytes, b"x")
        await engine.ready()
        assert await scripted.saw(engine, "level debug") == 1


async def test_loading_reports_progress_and_ends_ready(scripted: Scripted) -> None:
    async with scripted.open(ready=False) as engine:
        seen = [engine.status]
        while seen[-1].state is not EngineState.READY:
            seen.append(await engine.status_changed(seen[-1]))
        model = await engine.ready()
        assert [(status.state, status.progress) for status in seen][-1] == (EngineState.READY, 1.0)
        assert {status.state for status in seen[:-1]} == {EngineState.LOADING}
        assert model == engine.model
        assert scripted.count("configure") == 1


async def test_a_model_that_cannot_be_loaded_is_an_error_with_the_engines_words(scripted: Scripted) -> None:
    async with scripted.open("refuse", ready=False) as engine:
        with pytest.raises(LoadError, match=r"^m is no GGUF file$"):
            await engine.ready()
        assert engine.status.state is EngineState.FAILED
        assert engine.status.cause == "/folder/m is no GGUF file"
        with pytest.raises(Unavailable):
            await text(engine, SERVES)
    assert len(scripted.pids()) == 1


@pytest.mark.parametrize(
    ("load", "said"), [("exit 3", "exited with code 3"), ("die SIGKILL", "SIGKILL"), ("garbage", "invalid frame")]
)
async def test_a_process_that_ends_before_it_ever_served_is_not_replaced(
    scripted: Scripted, load: str, said: str
) -> None:
    async with scripted.open(load, ready=False) as engine:
        with pytest.raises(LoadError, match=said):
            await engine.ready()
    assert len(scripted.pids()) == 1


async def test_loading_without_progress_is_given_up(scripted: Scripted) -> None:
    async with scripted.open("slow", ready=False, load_timeout=0.5) as engine:
        with pytest.raises(LoadError, match="no progress"):
            await engine.ready()


@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV", "SIGBUS", "SIGABRT"])
async def test_a_crash_in_loading_leads_to_one_more_try_without_repacked_weights(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async with scripted.open(f"repack {name}") as engine:
        assert await text(engine, SERVES) == "well"
        assert engine.status.restarts == engine.telemetry.restarts == 1
        with pytest.raises(EngineFault):
            await text(engine, "accept; die SIGKILL")
        await engine.ready()
    assert [line for line in scripted.lines() if line.startswith("configure")] == [
        "configure repack=None",
        *["configure repack=False"] * (len(scripted.pids()) - 1),
    ]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert name in vars(warning)["why"]


async def test_only_the_first_start_pays_for_a_crash(scripted: Scripted) -> None:
    for _ in range(2):
        async with scripted.open("repack SIGILL"):
            pass
    starts = [line for line in scripted.lines() if line.startswith("configure")]
    assert starts == ["configure repack=None", "configure repack=False", "configure repack=False"]


async def test_a_recorded_crash_does_not_change_what_the_user_asked_for(scripted: Scripted) -> None:
    RepackCache().record(works=False)
    async with scripted.open(repack=True):
        assert scripted.count("configure repack=True") == 1


async def test_a_start_that_repacked_weights_is_remembered_until_one_crashes(scripted: Scripted) -> None:
    async with scripted.open():
        assert RepackCache().works() is True
    async with scripted.open("repack SIGILL"):
        assert RepackCache().works() is False


async def test_a_crash_without_repacked_weights_is_an_error(scripted: Scripted) -> None:
    async with scripted.open("die SIGILL", ready=False) as engine:
        with pytest.raises(LoadError, match="SIGILL"):
            await engine.ready()
    assert len(scripted.pids()) == 2


async def test_a_process_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with anyio.fail_after(GUARD):
        async with open_engine(EngineConfig(model="m"), command=[str(tmp_path / "nothing")]) as engine:
            with pytest.raises(LoadError, match="cannot be started"):
                await engine.ready()


async def test_a_lack_of_threads_ends_no_supervisor(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted.open() as engine:
        with monkeypatch.context() as full:
            full.setattr(anyio, "open_process", refuse_in_thread)
            scripted.kill()
            status = engine.status
            while "can't start new thread" not in status.detail:
                status = await engine.status_changed(status)
        await engine.ready()
        assert await text(engine, SERVES) == "well"


async def test_a_process_that_cannot_be_started_again_is_tried_until_it_can(scripted: Scripted, tmp_path: Path) -> None:
    program, command = tmp_path / "program", command_for("tests.engine.client.scripted_child")
    script = f'#!/bin/sh\nexec {command[0]} "$@"\n'
    program.write_text(script)
    program.chmod(0o700)
    limits = Supervision(backoff_first=0.01)
    with anyio.fail_after(GUARD):
        async with open_engine(
            EngineConfig(model="m"), command=[str(program), *command[1:], str(scripted.journal), "ok"], limits=limits
        ) as engine:
            await engine.ready()
            program.unlink()
            scripted.kill()
            status = engine.status
            while "cannot be started" not in status.detail or status.restarts < 3:
                status = await engine.status_changed(status)
            assert status.state is EngineState.RESTARTING
            (tmp_path / "new").write_text(script)
            (tmp_path / "new").chmod(0o700)
            (tmp_path / "new").rename(program)
            await engine.ready()
            assert await text(engine, SERVES) == "well"


async def test_a_load_error_raised_through_the_engine_is_no_group(scripted: Scripted) -> None:
    with pytest.raises(LoadError):
        async with scripted.open("exit 3"):
            pass


async def test_a_process_that_dies_is_replaced_and_the_next_request_served(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        for restarts in (1, 2, 3):
            async with engine.generate(ask("accept; say a; wait")) as generation:
                await generation.take()
                scripted.kill()
                with pytest.raises(EngineFault) as caught:
                    await generation.take()
                assert caught.value.code == "engine_died"
            await engine.ready()
            assert engine.status.restarts == restarts
            assert await text(engine, SERVES) == "well"
    assert scripted.count("cancel") == 0


async def test_as_many_requests_wait_for_an_engine_as_it_has_slots_and_places_in_its_queue() -> None:
    supervisor = Supervisor(EngineConfig(model="m", slots=2, queue_limit=3), [], Supervision())
    supervisor.exchange.connect(lambda _message: None)
    supervisor.exchange.disconnect()
    supervisor.board.post(EngineStatus(EngineState.RESTARTING, "The engine process ended.", 0.5, 1))
    supervisor._loading.begin(anyio.current_time())
    for _ in range(5):
        supervisor.exchange.open(ask(SERVES), None)
    with pytest.raises(Busy) as caught:
        await text(Engine(supervisor), SERVES)
    assert (caught.value.code, caught.value.retry_after is None) == ("queue_full", False)


async def test_a_restarting_engine_cannot_be_inspected_and_its_status_has_the_reason(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(_command: Sequence[str]) -> EngineProcess:
        pytest.fail("a process was started before its time")

    async with scripted.open(restarts=False) as engine:
        monkeypatch.setattr(EngineProcess, "start", start)
        status = await scripted.killed(engine)
        while "SIGKILL" not in status.detail:
            status = await engine.status_changed(status)
        await anyio.wait_all_tasks_blocked()
        assert engine.metrics is None
        assert engine.model is not None
        with pytest.raises(Unavailable, match="SIGKILL") as caught:
            await engine.inspect()
        assert caught.value.retry_after is not None
        assert caught.value.retry_after > 1, "the wait before the restart outlasts the test"


async def test_requests_and_queries_wait_while_the_engine_restarts(scripted: Scripted) -> None:
    said: dict[str, object] = {}

    async def generate() -> None:
        said["text"] = await text(engine, SERVES)

    async def detokenize() -> None:
        said["bytes"] = await engine.detokenize([97, 98], special=True)

    async with scripted.open() as engine, anyio.create_task_group() as group:
        await scripted.killed(engine)
        group.start_soon(generate)
        group.start_soon(detokenize)
        await engine.ready()
    assert said == {"text": "well", "bytes": b"ab"}
    assert len(scripted.keys()) == 1


async def test_the_wait_for_an_engine_has_a_deadline(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with scripted.open(restarts=False) as engine:
        await scripted.killed(engine)
        with pytest.raises(Busy) as caught:
            async with engine.generate(ask(SERVES), deadline=anyio.current_time()):
                pytest.fail("there is no engine")
        assert caught.value.code == "queue_timeout"
    assert scripted.keys() == []
    (line,) = [record for record in caplog.records if record.message == "request cancelled"]
    assert vars(line)["reason"] == "waited for the engine for too long"


async def test_leaving_while_the_engine_restarts_sends_it_nothing(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    loads = tmp_path / "loads"
    os.mkfifo(loads)
    async with scripted.open(f"ok | after {loads}") as engine:
        await scripted.killed(engine)
        async with anyio.create_task_group() as group:
            group.start_soon(text, engine, SERVES)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(loads.write_bytes, b"")
        await engine.ready()
        assert await scripted.saw(engine, "generate") == 0
    (line,) = [record for record in caplog.records if record.message == "request cancelled"]
    assert vars(line)["phase"] == "restarting"


@pytest.mark.parametrize(
    ("script", "healthy_after", "waits"),
    [(SERVES, FOREVER, [0.01] * 3), ("", FOREVER, [0.01, 0.02, 0.04]), ("", 1e-9, [0.01] * 3)],
)
async def test_the_wait_before_a_restart_grows_only_while_no_engine_works(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, script: str, healthy_after: float, waits: list[float]
) -> None:
    async with scripted.open(healthy_after=healthy_after) as engine:
        for _ in waits:
            if script:
                await text(engine, script)
            status = engine.status
            scripted.kill()
            await engine.status_changed(status)
            await engine.ready()
    lost = [vars(record)["restart_in_s"] for record in caplog.records if record.message == "engine process lost"]
    assert lost == waits


async def test_the_log_names_the_model_of_a_lost_engine_and_of_its_replacement(
    scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with scripted.open() as engine:
        model = await engine.ready()
        status = engine.status
        scripted.kill()
        await engine.status_changed(status)
        await engine.ready()
    lost, replaced = [vars(record) for record in caplog.records if record.message.startswith("engine process")]
    assert (lost["message"], lost["file"]) == ("engine process lost", "/folder/m")
    assert (replaced["message"], replaced["file"]) == ("engine process replaced", "/folder/m")
    assert replaced["context"] == model.context


async def test_a_process_knows_the_context_of_the_one_before(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        await engine.ready()
        status = engine.status
        scripted.kill()
        await engine.status_changed(status)
        await engine.ready()
    known = [line for line in scripted.lines() if line.startswith("earlier context")]
    assert known == ["earlier context None", "earlier context 512"]


async def test_the_counters_of_an_engine_go_on_with_its_next_process(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        for steps in (2, 4):
            assert await text(engine, SERVES) == "well"
            assert engine.telemetry.metrics.steps == steps
            await scripted.killed(engine)
            assert (engine.telemetry.metrics.steps, engine.telemetry.metrics.slots) == (steps, 0)
            await engine.ready()


async def test_a_load_error_after_a_ready_engine_is_retried(scripted: Scripted) -> None:
    async with scripted.open("ok | refuse | exit 3 | die SIGILL | ok") as engine:
        await scripted.killed(engine)
        await engine.ready()
        assert engine.status.restarts == 4
        assert await text(engine, SERVES) == "well"


async def test_a_model_that_is_lost_ends_the_requests_that_wait_when_its_owner_gives_up(scripted: Scripted) -> None:
    errors = list[Unavailable]()

    async def fail(call: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(Unavailable, match=r"^m is no GGUF file$") as caught:
            await call()
        errors.append(caught.value)

    async with anyio.create_task_group() as group, scripted.open("ok | exit 3 | refuse") as engine:
        await scripted.killed(engine)
        group.start_soon(fail, partial(text, engine, SERVES))
        group.start_soon(fail, partial(engine.detokenize, [97], special=True))
        with pytest.raises(LoadError, match=r"^m is no GGUF file$"):
            await engine.lost()
    await fail(partial(text, engine, SERVES))
    assert [error.code for error in errors] == ["model_unavailable"] * 3
    assert engine.status.cause == "/folder/m is no GGUF file"


async def test_a_model_that_loads_again_is_not_lost(scripted: Scripted) -> None:
    async with scripted.open("ok | exit 3 | ok") as engine:
        await scripted.killed(engine)
        await engine.ready()
        with anyio.move_on_after(0) as scope:
            await engine.lost()
        assert scope.cancelled_caught


async def test_streams_of_a_dead_engine_each_end_once(scripted: Scripted) -> None:
    """Eight have shown text and fail; eight have not and are served by the next process."""
    ends: list[str] = []

    async def one(script: str) -> None:
        try:
            ends.append(await text(engine, script))
        except EngineFault as fault:
            ends.append(fault.message)

    async with scripted.open() as engine:
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, f"accept; say a{number}; wait | accept; finish")
                group.start_soon(one, f"accept; start; wait | accept; say b{number}; finish")
            while await scripted.saw(engine, "generate") < 16:
                await anyio.lowlevel.checkpoint()
            scripted.kill()
        assert sorted(end for end in ends if end.startswith("b")) == [f"b{number}" for number in range(8)]
        assert len([end for end in ends if "died" in end]) == 8
    assert scripted.count("cancel") == 0


async def test_a_request_without_output_is_replayed_invisibly(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        assert await text(engine, "accept; start; die SIGKILL | accept; start; say b; finish") == "b"
    assert len(set(scripted.keys())) == 2


async def test_a_request_that_was_not_accepted_yet_is_replayed_while_entering(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        assert await text(engine, "die SIGKILL | accept; say b; finish") == "b"


async def test_choices_that_were_not_taken_yet_are_replayed_whole(scripted: Scripted) -> None:
    script = "accept; say a; finish 1; die SIGKILL | accept; finish; finish 1"
    async with scripted.open() as engine, engine.generate(ask(script, n=2, stream=False)) as generation:
        assert [end.choice for end in await generation.outcomes()] == [0, 1]


async def test_a_request_that_kills_every_engine_is_replayed_once(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        with pytest.raises(EngineFault, match="died"):
            await text(engine, "accept; start; die SIGSEGV")
        await engine.ready()
    assert len(scripted.keys()) == 2


async def test_a_replay_may_be_refused(scripted: Scripted) -> None:
    async with scripted.open() as engine, engine.generate(ask("accept; wait | refuse EngineFault")) as generation:
        scripted.kill()
        with pytest.raises(EngineFault, match="refused as asked"):
            await generation.take()


async def test_a_query_in_flight_ends_with_the_engine(scripted: Scripted) -> None:
    async with scripted.open() as engine, anyio.create_task_group() as group:
        os.kill(scripted.pids()[-1], signal.SIGSTOP)
        group.start_soon(_told_unavailable, engine.inspect)
        await anyio.wait_all_tasks_blocked()
        scripted.kill()


@pytest.mark.parametrize("verb", ["garbage; wait", "exit 0", "die SIGABRT"])
async def test_an_engine_that_sends_garbage_or_closes_its_pipe_is_replaced(scripted: Scripted, verb: str) -> None:
    async with scripted.open() as engine:
        with pytest.raises(EngineFault):
            await text(engine, f"accept; {verb}")
        await engine.ready()
        assert await text(engine, SERVES) == "well"


async def test_shutdown_closes_stdin_and_waits_for_the_process(scripted: Scripted) -> None:
    async with scripted.open(drain_timeout=FOREVER):
        pass
    assert scripted.count("eof") == 1


@pytest.mark.parametrize("verb", ["hang", "stubborn; wait"])
async def test_a_process_that_does_not_end_at_shutdown_is_killed(scripted: Scripted, verb: str) -> None:
    async with scripted.open(drain_timeout=0.2, answer_timeout=0.0) as engine, engine.generate(ask(f"accept; {verb}")):
        pass
    assert len(scripted.pids()) == 1


@pytest.mark.parametrize("load", ["ok", "slow", "hang"])
async def test_shutdown_works_while_loading(scripted: Scripted, load: str) -> None:
    async with scripted.open(load, ready=False, drain_timeout=0.2) as engine:
        while engine.status.progress == 0.0:
            await engine.status_changed()


async def test_shutdown_works_right_after_the_start() -> None:
    with anyio.fail_after(GUARD):
        async with open_engine(EngineConfig(model="m"), command=["/bin/cat"]):
            pass


async def test_shutdown_works_while_waiting_for_a_restart(scripted: Scripted) -> None:
    async with scripted.open(restarts=False) as engine:
        await scripted.killed(engine)
        while not engine.status.restarts:
            await engine.status_changed()
    assert (engine.status.state, engine.status.restarts) == (EngineState.STOPPED, 1)


async def test_a_cancelled_owner_still_ends_the_process(scripted: Scripted) -> None:
    with anyio.CancelScope() as scope:
        async with scripted.open():
            scope.cancel()
            await anyio.sleep_forever()
    assert scripted.count("eof") == 1


async def test_ctrl_c_on_the_terminal_does_not_reach_the_process(scripted: Scripted) -> None:
    async with scripted.open():
        assert os.getpgid(scripted.pids()[0]) != os.getpgid(0)


async def test_a_folder_named_engine_does_not_shadow_ours(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('the wrong engine')")
    monkeypatch.chdir(tmp_path)
    async with scripted.open() as engine:
        assert await text(engine, SERVES) == "well"


def test_an_exit_code_is_described_in_words() -> None:
    assert describe_exit(0) == "The engine process exited with code 0."
    assert describe_exit(-signal.SIGSEGV) == "The engine process was killed by SIGSEGV."
    killed = "The engine process was killed by SIGKILL. The kernel does that where memory runs out."
    assert describe_exit(-signal.SIGKILL) == killed
    assert describe_exit(-40) == "The engine process was killed by signal 40."
