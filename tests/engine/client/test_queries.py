"""Queries about the vocabulary: real pipes, a scripted child; answered, failed, cancelled and lost."""

import anyio
import anyio.lowlevel
import pytest

from engine import Engine, EngineState, RequestError, TokenRun, Unavailable
from tests.engine.client.harness import Scripted, until

pytestmark = pytest.mark.anyio


async def tokenize(engine: Engine, *texts: str) -> list[TokenRun]:
    """Return the parts of the answer in the order of their arrival."""
    parts: list[TokenRun] = []
    await engine.tokenize(texts, special=True, begin=False, take=parts.append)
    return parts


async def test_texts_become_tokens_and_tokens_become_bytes(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        assert await tokenize(engine, "a", "", "b") == [TokenRun(0, (97,)), TokenRun(1, ()), TokenRun(2, (98,))]
        assert await engine.detokenize([0xC3, 97], special=True) == b"\xc3a"


async def test_other_tasks_run_between_the_parts_of_an_answer(scripted: Scripted) -> None:
    order: list[str] = []

    async def be_another_task() -> None:
        while True:
            order.append("another")
            await anyio.lowlevel.checkpoint()

    async with scripted.open() as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(be_another_task)
        await engine.tokenize("a" * 20, special=True, begin=False, take=lambda _part: order.append("part"))
        tasks.cancel_scope.cancel()
    first, *_, last = (at for at, one in enumerate(order) if one == "part")
    assert order[first:last].count("another") >= 18


async def test_a_failed_query_raises_the_exception_of_its_kind(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        for _ in range(2):
            with pytest.raises(RequestError, match="failed as asked") as caught:
                await engine.detokenize([256], special=True)
            assert (caught.value.code, caught.value.param) == ("asked", "tokens")
        with pytest.raises(RequestError):
            await tokenize(engine, "no-answer")


async def test_cancelling_the_wait_cancels_the_query(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: tokenize(engine, "ignore"))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert await scripted.saw(engine, "cancel-query") == 1
        await tokenize(engine, "a")
        assert await scripted.saw(engine, "cancel-query") == 1


async def test_an_engine_that_dies_leaves_no_query_open(scripted: Scripted) -> None:
    async with scripted.open(restarts=False) as engine:
        with pytest.raises(Unavailable):
            await tokenize(engine, "die SIGKILL")
        await until(engine, EngineState.RESTARTING)


async def test_a_query_that_no_frame_can_carry_is_a_request_error(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        with pytest.raises(RequestError):
            await tokenize(engine, "\ud800")
        with pytest.raises(RequestError):
            await engine.detokenize([2**64], special=True)
        assert await scripted.saw(engine, "cancel-query") == 0
