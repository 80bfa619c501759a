"""Threads of a PostgreSQL database: one after another on one connection, whatever was abandoned."""

import threading
from typing import TypeVar

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from gateway.storage.database import Work
from gateway.storage.postgres import PostgresDatabase

pytestmark = pytest.mark.anyio

T = TypeVar("T")
GUARD = 30.0


class Stalled(PostgresDatabase):
    """A database whose server does not answer until it is released."""

    def __init__(self) -> None:
        super().__init__("postgresql://nowhere")
        self.answers = threading.Event()
        self.entered = self.at_once = self.most = 0

    @override
    def _run(self, work: Work[T]) -> T:
        self.entered += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.answers.wait(GUARD)
        self.at_once -= 1
        return work(lambda _statement, _values=(): [])


async def test_calls_that_are_given_up_leave_one_thread_behind() -> None:
    database = Stalled()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(database.read, lambda _execute: None)
        while not database.entered:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    with anyio.move_on_after(0.1):
        await database.write(lambda _execute: None)
    assert (database.entered, database.at_once) == (1, 1)
    database.answers.set()
    with anyio.fail_after(GUARD):
        assert await database.read(lambda _execute: "answer") == "answer"
    assert (database.entered, database.most) == (2, 1)
