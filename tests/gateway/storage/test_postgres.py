"""A PostgreSQL database: one connection, for one thread after another, and what becomes of a lost one."""

import os
import socket
import threading
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.lowlevel
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from typing_extensions import override

from gateway.storage import postgres
from gateway.storage.database import StorageError, Work
from gateway.storage.postgres import CONNECT_TIMEOUT, PostgresDatabase

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


async def test_a_server_that_is_stuck_is_a_failure_and_stops_no_gateway_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "ANSWER_TIMEOUT", 0.01)
    monkeypatch.setattr(postgres, "CLOSE_TIMEOUT", 0.01)
    database = Stalled()
    with anyio.fail_after(GUARD):
        for _ in range(2):
            with pytest.raises(StorageError, match="no answer"):
                await database.write(lambda _execute: None)
        with pytest.raises(StorageError, match="no answer"):
            await database.batch([("SELECT 1", ())])
        with anyio.CancelScope(shield=True):
            await database.close()
    assert database.entered == 1
    database.answers.set()


async def test_a_change_that_runs_is_not_interrupted_by_the_end_of_its_caller() -> None:
    database, answers = Stalled(), list[str]()

    async def change() -> None:
        answers.append(await database.write(lambda _execute: "stored"))

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(change)
            while not database.entered:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
            database.answers.set()
    assert answers == ["stored"]


END_OTHERS = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'llama-gateway'"


async def test_a_connection_that_the_server_has_ended_is_replaced_before_its_next_use(url: str) -> None:
    """Else the first change after a restart of the server fails, and a gateway that stops then loses it."""
    database = PostgresDatabase(url)
    for use in (database.read, database.write):
        assert await use(lambda execute: execute("SELECT 1")) == [(1,)]
        with psycopg.connect(url) as connection:
            connection.execute(END_OTHERS)
    assert await database.batch([("SELECT 1", ())]) == [[(1,)]]
    await database.close()


class Relayed(PostgresDatabase):
    """A database that is reached over TCP by one connection, which a thread relays to the socket of the server."""

    def __init__(self, url: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        place = conninfo_to_dict(url)
        self._target = f"{place['host']}/.s.PGSQL.5432"
        super().__init__(f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}/{place['dbname']}")
        threading.Thread(target=self._relay, daemon=True).start()

    def option(self, name: int) -> int:
        """Return an option of the connection's socket."""
        assert self._connection is not None
        with socket.socket(fileno=os.dup(self._connection.fileno())) as copy:
            return copy.getsockopt(socket.IPPROTO_TCP, name)

    def _relay(self) -> None:
        with self._listener, self._listener.accept()[0] as client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._target)
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()
            _copy(client, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # the other direction has ended
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


async def test_a_host_that_vanishes_during_a_transaction_is_given_up_soon(url: str) -> None:
    """Linux looks at the timeout of unanswered data at probes only, once one was sent."""
    database = Relayed(url)
    await database.read(lambda execute: execute("SELECT 1"))
    assert database.option(socket.TCP_USER_TIMEOUT) == 1000 * CONNECT_TIMEOUT
    assert database.option(socket.TCP_KEEPIDLE) + database.option(socket.TCP_KEEPINTVL) <= CONNECT_TIMEOUT + 1
    await database.close()
