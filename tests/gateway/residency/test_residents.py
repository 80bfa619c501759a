"""The engines of models on demand: who opens, owns and ends them, whatever requests do."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from itertools import count

import anyio
import anyio.lowlevel
import pytest

from engine import Busy, Engine, EngineMetrics, EngineState, LoadError, Unavailable
from gateway.middleware.request_id import current_request_id
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.residents import Residents
from gateway.residency.terms import ModelTerms, Phase, ResidencyLimits
from tests.gateway.residency.openers import FakeOpener, opened

pytestmark = pytest.mark.anyio


def residency(room: int, *models: str | ModelTerms) -> Residency:
    terms = (model if isinstance(model, ModelTerms) else ModelTerms(model, Memory(1)) for model in models)
    return Residency(terms, Memory(room), ResidencyLimits(backoff_first=1000, backoff_longest=1000))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await anyio.lowlevel.checkpoint()


async def test_one_load_serves_all_that_wait() -> None:
    opener, answered = FakeOpener(), list[str]()

    async def ask(name: str) -> None:
        with ExitStack() as held:
            engine = await residents.models["a"].hold(held)
            assert engine.status.state is EngineState.READY
            answered.append(name)

    async with opened(residency(1, "a"), opener) as residents, anyio.create_task_group() as tasks:
        for name in ("one", "two", "three"):
            tasks.start_soon(ask, name)
            await anyio.wait_all_tasks_blocked()
        assert (opener.opened, answered) == (["a"], [])
        opener.engines["a"].load()
    assert (opener.opened, sorted(answered)) == (["a"], ["one", "three", "two"])


async def test_a_request_holds_the_model_until_its_end() -> None:
    opener = FakeOpener(loads_at_once=True)
    async with opened(residency(1, "a", "b"), opener) as residents, anyio.create_task_group() as tasks:
        with ExitStack() as other, ExitStack() as held:
            await residents.models["a"].hold(held)
            tasks.start_soon(residents.models["b"].hold, other)
            await anyio.wait_all_tasks_blocked()
            assert opener.opened == ["a"]
            held.close()
            await until(lambda: residents.models["b"].account.phase is Phase.LOADED)
            assert (opener.opened, opener.most) == (["a", "b"], 1)


async def test_the_next_model_is_opened_only_after_the_process_has_ended() -> None:
    may_end = anyio.Event()
    opener = FakeOpener(loads_at_once=True, ends_slowly=may_end)
    async with opened(residency(1, "a", "b"), opener) as residents, anyio.create_task_group() as tasks:
        with ExitStack() as held:
            await residents.models["a"].hold(held)
        with ExitStack() as other:
            tasks.start_soon(residents.models["b"].hold, other)
            await anyio.wait_all_tasks_blocked()
            assert (residents.models["a"].account.phase, opener.opened) == (Phase.UNLOADING, ["a"])
            may_end.set()
            await until(lambda: residents.models["b"].account.phase is Phase.LOADED)


async def test_the_life_of_an_engine_is_not_logged_as_that_of_the_request_that_loads_it() -> None:
    opener, ids = FakeOpener(loads_at_once=True), list[str | None]()

    @asynccontextmanager
    async def noting(model: str) -> AsyncIterator[Engine]:
        ids.append(current_request_id.get())
        async with opener(model) as engine:
            yield engine

    residents = Residents(residency(1, "a"), noting)
    async with residents.open():
        reset = current_request_id.set("req_1")
        with ExitStack() as held:
            await residents.models["a"].hold(held)
        current_request_id.reset(reset)
    assert ids == [None]


async def test_the_last_waiter_that_leaves_ends_the_load() -> None:
    opener = FakeOpener()
    async with opened(residency(1, "a"), opener) as residents:
        with ExitStack() as held:
            async with anyio.create_task_group() as first, anyio.create_task_group() as second:
                first.start_soon(residents.models["a"].hold, held)
                second.start_soon(residents.models["a"].hold, held)
                await anyio.wait_all_tasks_blocked()
                first.cancel_scope.cancel()
                await anyio.wait_all_tasks_blocked()
                assert residents.models["a"].account.phase is Phase.LOADING
                second.cancel_scope.cancel()
            await until(lambda: residents.models["a"].account.phase is Phase.UNLOADED)
        assert (opener.engines, residents.models["a"].account.failure) == ({}, "")


async def test_a_failed_load_answers_all_waiters_at_once_and_the_next_one_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opener, errors = FakeOpener(), list[Unavailable]()

    async def ask() -> None:
        with ExitStack() as held, pytest.raises(Unavailable, match="It broke") as caught:
            await residents.models["a"].hold(held)
        errors.append(caught.value)

    async with opened(residency(1, "a"), opener) as residents:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            opener.engines["a"].fail("It broke.")
        await ask()
        assert [(error.code, error.retry_after is not None) for error in errors] == [("model_unavailable", True)] * 3
        assert (opener.opened, opener.engines) == (["a"], {})
        status = residents.models["a"].status
        assert (status.state, status.detail) == (EngineState.FAILED, "It broke.")
        assert [vars(record)["why"] for record in caplog.records if "why" in vars(record)] == ["/folder/It broke."]
        residents.models["a"].load()
        await until(lambda: "a" in opener.engines)
        opener.engines["a"].load()
        with ExitStack() as held:
            await residents.models["a"].hold(held)


async def test_a_model_that_is_lost_after_its_load_answers_at_once_and_heals_by_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opener = FakeOpener(loads_at_once=True)
    async with opened(residency(1, "a"), opener) as residents:
        with ExitStack() as held:
            await residents.models["a"].hold(held)
            opener.engines["a"].lose("It is gone.")
            await until(lambda: residents.models["a"].account.phase is Phase.UNLOADED)
            with ExitStack() as other, pytest.raises(Unavailable, match="It is gone") as caught:
                await residents.models["a"].hold(other)
            assert (caught.value.code, caught.value.retry_after is not None) == ("model_unavailable", True)
        assert (opener.engines, residents.models["a"].status.state) == ({}, EngineState.FAILED)
        assert [vars(record)["why"] for record in caplog.records if "why" in vars(record)] == ["/folder/It is gone."]
        residents.models["a"].load()
        with ExitStack() as held:
            await residents.models["a"].hold(held)


async def test_a_request_whose_model_is_lost_as_it_is_granted_is_answered() -> None:
    opener = FakeOpener()

    async def ask() -> None:
        with ExitStack() as held, pytest.raises(Unavailable, match="It is gone") as caught:
            await residents.models["a"].hold(held)
        assert caught.value.code == "model_unavailable"

    async with opened(residency(1, "a"), opener) as residents:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            engine = opener.engines["a"]
            engine.load()
            engine.lose("It is gone.")
        await until(lambda: residents.models["a"].account.phase is Phase.UNLOADED)


async def test_a_model_that_is_lost_is_forgotten_once_its_last_request_has_left() -> None:
    opener = FakeOpener(loads_at_once=True)
    async with opened(residency(1, "a"), opener) as residents, anyio.create_task_group() as tasks:
        with ExitStack() as held:
            await residents.models["a"].hold(held)
            opener.engines["a"].lose("It is gone.")
            await until(lambda: residents.models["a"].account.phase is Phase.UNLOADED)
            tasks.start_soon(residents.remove, "a")
            await anyio.wait_all_tasks_blocked()
            assert residents.models["a"].account.used


async def test_a_model_is_not_removed_while_a_request_waits_for_it_but_an_order_to_load_it_ends() -> None:
    opener = FakeOpener(loads_at_once=True)
    async with opened(residency(1, "a", "b", "c"), opener) as residents, anyio.create_task_group() as tasks:
        with ExitStack() as later:
            with ExitStack() as held:
                await residents.models["a"].hold(held)
                tasks.start_soon(residents.models["b"].hold, later)
                residents.models["c"].load()
                with anyio.fail_after(20):
                    await residents.remove("c")
                tasks.start_soon(residents.remove, "b")
                await anyio.wait_all_tasks_blocked()
                assert residents.models["b"].account.waiting
            await until(lambda: residents.models["b"].account.phase is Phase.LOADED)
            await anyio.wait_all_tasks_blocked()


async def test_a_model_that_is_removed_leaves_no_engine_to_one_of_its_name() -> None:
    opener = FakeOpener(loads_at_once=True)
    async with opened(residency(1, "a"), opener) as residents:
        with ExitStack() as held:
            await residents.models["a"].hold(held)
            opener.engines["a"].metrics = EngineMetrics(steps=1)
        await residents.remove("a")
        assert "a" not in residents.models
        residents.add(ModelTerms("a", Memory(1)))
        assert residents.models["a"].account.phase is Phase.UNLOADED
        assert (residents.models["a"].last_loaded, residents.models["a"].telemetry.metrics.steps) == (None, 0)


async def test_a_model_that_never_fits_is_a_load_error() -> None:
    async with opened(residency(1, ModelTerms("huge", Memory(2))), FakeOpener()) as residents:
        with ExitStack() as held, pytest.raises(LoadError) as caught:
            await residents.models["huge"].hold(held)
        assert caught.value.code == "model_too_large"
        assert residents.models["huge"].status.state is EngineState.FAILED


async def test_the_wait_has_a_deadline() -> None:
    opener = FakeOpener()
    async with opened(residency(1, "a"), opener, patience=0) as residents:
        with ExitStack() as held, pytest.raises(Busy) as caught:
            await residents.models["a"].hold(held)
        assert caught.value.code == "queue_timeout"
        await until(lambda: residents.models["a"].account.phase is Phase.UNLOADED)


async def test_a_granted_request_that_is_cancelled_at_the_same_time_holds_nothing() -> None:
    opener = FakeOpener(loads_at_once=True)
    async with opened(residency(1, "a"), opener) as residents:
        with ExitStack() as held:
            await residents.models["a"].hold(held)
        with anyio.CancelScope() as scope, ExitStack() as held:
            scope.cancel()
            await residents.models["a"].hold(held)
        residents.models["a"].unload()
        await until(lambda: residents.models["a"].account.phase is Phase.UNLOADED)


async def test_a_load_that_ends_just_as_it_is_given_up_serves_none() -> None:
    opener = FakeOpener()
    async with opened(residency(1, "a"), opener) as residents, anyio.create_task_group() as tasks:
        residents.models["a"].load()
        await until(lambda: "a" in opener.engines)
        await anyio.wait_all_tasks_blocked()
        opener.engines["a"].load()
        residents.models["a"].unload()
        with ExitStack() as held:
            tasks.start_soon(residents.models["a"].hold, held)
            await anyio.wait_all_tasks_blocked()
            phases = residents.models["a"].account.phase, len(residents.models["a"].account.waiting), opener.opened
            tasks.cancel_scope.cancel()
    assert phases == (Phase.LOADING, 1, ["a", "a"])


async def test_kept_models_load_at_the_start_and_idle_ones_end_in_time() -> None:
    opener = FakeOpener(loads_at_once=True)
    models = ModelTerms("kept", Memory(1), keep_loaded=True), ModelTerms("brief", Memory(1), idle_unload=0)
    async with opened(residency(2, *models), opener) as residents:
        await until(lambda: residents.models["kept"].account.phase is Phase.LOADED)
        with ExitStack() as held:
            await residents.models["brief"].hold(held)
        await until(lambda: residents.models["brief"].account.phase is Phase.UNLOADED)
        assert residents.models["kept"].account.phase is Phase.LOADED


async def test_a_failed_kept_model_is_tried_again_when_its_time_has_come() -> None:
    opener = FakeOpener()
    policy = Residency(
        [ModelTerms("kept", Memory(1), keep_loaded=True)], Memory(1), ResidencyLimits(backoff_first=1e-9)
    )
    async with opened(policy, opener) as residents:
        await until(lambda: "kept" in opener.engines)
        opener.engines["kept"].fail("It broke.")
        await until(lambda: len(opener.opened) == 2)
        opener.engines["kept"].load()
        await until(lambda: residents.models["kept"].account.phase is Phase.LOADED)
        assert residents.models["kept"].account.failure == ""


async def test_a_failed_model_whose_time_comes_just_after_a_decision_is_tried_again() -> None:
    opener, ticks = FakeOpener(), count()
    limits = ResidencyLimits(backoff_first=1.5)  # one tick from the failure to the decision, and one to the look after
    policy = Residency([ModelTerms("kept", Memory(1), keep_loaded=True)], Memory(1), limits)
    async with opened(policy, opener, clock=lambda: next(ticks)):
        await until(lambda: "kept" in opener.engines)
        opener.engines["kept"].fail("It broke.")
        await until(lambda: len(opener.opened) == 2)


async def test_the_end_of_the_server_ends_all_engines_and_refuses_requests() -> None:
    opener = FakeOpener()
    async with opened(residency(2, "a", "b"), opener) as residents:
        residents.models["a"].load()
        residents.models["b"].load()
        await until(lambda: len(opener.engines) == 2)
        opener.engines["a"].load()
    assert opener.engines == {}
    with ExitStack() as held, pytest.raises(Unavailable, match="shutting down") as caught:
        await residents.models["a"].hold(held)
    assert caught.value.code == "shutting_down"


async def test_the_status_of_a_model_without_an_engine_is_stopped() -> None:
    async with opened(residency(1, "a"), FakeOpener()) as residents:
        assert (residents.models["a"].status.state, residents.models["a"].engine) == (EngineState.STOPPED, None)


async def test_what_was_measured_replaces_the_estimate(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    need = 7 * 2**30
    async with opened(residency(2 * need, "a"), FakeOpener(host_memory=need, loads_at_once=True)) as residents:
        residents.models["a"].load()
        await until(lambda: residents.models["a"].account.phase is Phase.LOADED)
        assert residents.models["a"].account.need == Memory(need)
    [loaded] = [vars(record) for record in caplog.records if record.getMessage() == "model loaded"]
    assert (loaded["takes"], loaded["counts"]) == ("3.50 GiB of host memory", "7.00 GiB of host memory")


async def test_three_models_that_share_room_for_two_serve_all_that_stay() -> None:
    opener, answered, stayed = FakeOpener(loads_at_once=True), list[int](), set[int]()

    async def client(residents: Residents, number: int) -> None:
        for turn in range(8):
            at = number * 8 + turn
            leaves = at % 5 == 0
            with anyio.CancelScope() as scope, ExitStack() as held:
                if leaves:
                    scope.cancel()
                else:
                    stayed.add(at)
                await residents.models["abc"[(number + turn) % 3]].hold(held)
                await anyio.lowlevel.checkpoint()
                answered.append(at)

    async with opened(residency(2, "a", "b", "c"), opener) as residents, anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(client, residents, number)
    assert (sorted(answered), opener.most) == (sorted(stayed), 2)
    assert len(opener.opened) < len(answered) / 2
