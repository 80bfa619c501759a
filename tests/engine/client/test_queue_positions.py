"""Positions in the queue: asked once for all who want to know."""

import anyio
import anyio.lowlevel
import pytest

from engine.client import queue_positions
from engine.client.queue_positions import QueuePositions
from engine.errors import Unavailable
from engine.protocol.messages import QueueOrder

pytestmark = pytest.mark.anyio


class Asked:
    """A query that answers with these keys, and counts."""

    def __init__(self, *keys: int) -> None:
        self.keys = keys
        self.times = 0

    async def __call__(self) -> QueueOrder:
        self.times += 1
        await anyio.lowlevel.checkpoint()
        return QueueOrder(self.keys)


async def test_many_who_ask_at_once_share_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_positions, "FRESH", 1000.0)
    asked, found = Asked(7, 3), list[object]()
    positions = QueuePositions(asked)

    async def ask() -> None:
        found.append(await positions.latest())

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)
    assert found == [{7: 1, 3: 2}] * 20
    assert asked.times == 1


async def test_an_old_answer_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_positions, "FRESH", 0.0)
    asked = Asked(7, 3)
    positions = QueuePositions(asked)
    await positions.latest()
    asked.keys = (3,)
    assert await positions.latest() == {3: 1}


async def test_an_engine_that_does_not_answer_holds_up_none() -> None:
    asked = 0

    async def ask() -> QueueOrder:
        nonlocal asked
        asked += 1
        await anyio.sleep_forever()
        raise AssertionError

    positions = QueuePositions(ask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_positions, "ASK_TIMEOUT", 0.0)
        patch.setattr(queue_positions, "FRESH", 1000.0)
        assert [await positions.latest() for _ in range(20)] == [{}] * 20
    assert asked == 1, "those who wait for the same answer do not wait one after another"


async def test_a_failed_query_is_asked_again() -> None:
    asked, fails = Asked(5), [True]

    async def ask() -> QueueOrder:
        if fails.pop():
            raise Unavailable("The engine ended.", code="engine_unavailable")
        return await asked()

    positions = QueuePositions(ask)
    with pytest.raises(Unavailable):
        await positions.latest()
    fails.append(False)
    assert await positions.latest() == {5: 1}


async def test_positions_that_the_engine_does_not_confirm_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_positions, "FRESH", 0.0)
    asked, answers = Asked(5), [True, False]

    async def ask() -> QueueOrder:
        if not answers.pop(0):
            await anyio.sleep_forever()
        return await asked()

    positions = QueuePositions(ask)
    assert await positions.latest() == {5: 1}
    monkeypatch.setattr(queue_positions, "ASK_TIMEOUT", 0.0)
    assert await positions.latest() == {}
