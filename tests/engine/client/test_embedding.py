"""Embedding requests of the client: real pipes, a scripted child. Each has exactly one end."""

import logging

import anyio
import pytest

from engine import EmbeddingRequest, EmbeddingResult, Engine, EngineFault, EngineState, RequestError, Unavailable
from tests.engine.client.harness import Scripted, until

pytestmark = pytest.mark.anyio


def ask(*inputs: str) -> EmbeddingRequest:
    return EmbeddingRequest(id="r", inputs=inputs)


async def leave(engine: Engine, script: str, when: str) -> None:
    """Cancel the request while the child runs its script."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: engine.embed(ask(script), why=lambda: when))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


async def test_vectors_come_in_the_order_of_the_inputs(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        result = await engine.embed(ask("accept; vector 1; vector 0", "other"))
        assert result == EmbeddingResult((bytes(4), b"\x01" * 4), (7,))


@pytest.mark.parametrize("script", ["wait", "accept; wait", "accept; start; wait"])
async def test_leaving_an_embedding_request_cancels_it_and_awaits_the_release(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, script: str
) -> None:
    caplog.set_level(logging.INFO, "engine.client")
    async with scripted.open() as engine:
        await leave(engine, script, "the client left")
        assert await scripted.saw(engine, "cancel") == 1
        assert await scripted.saw(engine, "end") == 1
    (line,) = [record for record in caplog.records if record.message == "request cancelled"]
    assert line.__dict__["reason"] == "the client left"
    assert line.__dict__["request_id"] == "r"


async def test_a_refusal_and_a_failure_are_raised(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        with pytest.raises(RequestError, match="refused as asked"):
            await engine.embed(ask("refuse RequestError"))
        with pytest.raises(EngineFault, match="failed as asked"):
            await engine.embed(ask("accept; fail"))
        assert await scripted.saw(engine, "cancel") == 0


async def test_a_request_outlives_the_engine_once(scripted: Scripted) -> None:
    async with scripted.open() as engine:
        result = await engine.embed(ask("accept; vector 0; die SIGKILL | accept; vector 0; vector 1", "b"))
        assert len(result.vectors) == 2
        with pytest.raises(EngineFault) as caught:
            await engine.embed(ask("accept; die SIGKILL"))
        assert caught.value.code == "engine_died"


async def test_a_request_to_an_engine_that_does_not_serve_is_unavailable(scripted: Scripted) -> None:
    async with scripted.open("refuse", ready=False) as engine:
        await until(engine, EngineState.FAILED)
        with pytest.raises(Unavailable):
            await engine.embed(ask("accept; vector"))
