"""Queries about the vocabulary: real pipes, a scripted child; answered, failed, cancelled and lost."""

import anyio
import pytest

from engine import EngineState, RequestError, TokenDetail, Unavailable
from tests.engine.client.harness import Scripted, until

pytestmark = pytest.mark.anyio


async def test_texts_become_tokens_and_tokens_become_bytes(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        tokens = await engine.tokenize(["a", ""], special=True, begin=False)
        assert tokens == ((TokenDetail(97, b"a"),), ())
        assert await engine.detokenize([0xC3, 97], special=True) == b"\xc3a"


async def test_a_failed_query_raises_the_exception_of_its_kind(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        for _ in range(2):
            with pytest.raises(RequestError, match="failed as told") as caught:
                await engine.detokenize([256], special=True)
            assert (caught.value.code, caught.value.param) == ("told", "tokens")
        with pytest.raises(RequestError):
            await engine.tokenize(["no-answer"], special=True, begin=True)


async def test_cancelling_the_wait_cancels_the_query(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: engine.tokenize(["ignore"], special=True, begin=True))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert await scripted.saw(engine, "cancel-query") == 1
        await engine.tokenize(["a"], special=True, begin=True)
        assert await scripted.saw(engine, "cancel-query") == 1


async def test_an_engine_that_dies_leaves_no_query_open(scripted: Scripted) -> None:
    async with scripted.open(restarts=False) as engine:
        with pytest.raises(Unavailable):
            await engine.tokenize(["die SIGKILL"], special=True, begin=True)
        await until(engine, EngineState.RESTARTING)
        with pytest.raises(Unavailable):
            await engine.detokenize([97], special=True)


async def test_a_query_that_no_frame_can_carry_is_a_request_error(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        with pytest.raises(RequestError):
            await engine.tokenize(["\ud800"], special=True, begin=True)
        with pytest.raises(RequestError):
            await engine.detokenize([2**64], special=True)
        assert await scripted.saw(engine, "cancel-query") == 0
