"""Count the turns that other tasks get while something runs."""

from collections.abc import Awaitable
from typing import TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus

ResultT = TypeVar("ResultT")


async def with_turns(work: Awaitable[ResultT]) -> tuple[ResultT, int]:
    """Return the result of `work`, and the number of turns that a neighbour had meanwhile.

    The neighbour has one turn for each checkpoint of `work`. The last one may be missing, since the order is random.
    """
    turns = 0

    async def neighbour(*, task_status: TaskStatus[None]) -> None:
        nonlocal turns
        task_status.started()
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        await tasks.start(neighbour)
        result = await work
        tasks.cancel_scope.cancel()
    return result, turns
