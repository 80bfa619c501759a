"""The pool of workers: what jobs may do to it, and what they may not do to each other."""

import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process, TaskGroup
from anyio.lowlevel import checkpoint

from engine import Busy, EngineFault, RequestError, Unavailable
from gateway.preparation.workers import pool as pool_module
from gateway.preparation.workers.messages import Job, Limits
from gateway.preparation.workers.pool import LARGE, WorkerPool
from gateway.preparation.workers.process import ForkServer, Worker, WorkerDiedError, open_fork_server
from tests.gateway.preparation.workers import functions

pytestmark = pytest.mark.anyio

GUARD = 30
LIMITS = Limits(seconds=GUARD, wait=GUARD, memory=64 * 2**20, output=2**20)
SHORT = Limits(seconds=0.2, wait=GUARD, memory=64 * 2**20, output=2**20)
IMPATIENT = Limits(seconds=GUARD, wait=0.2, memory=64 * 2**20, output=2**20)


def job(function: Callable[[bytes, bytes], bytes], argument: object = "", limits: Limits = LIMITS) -> Job:
    return Job(f"{function.__module__}:{function.__name__}", str(argument).encode(), limits)


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    created = WorkerPool()
    async with created.open([functions.__name__]):
        await started(created)
        yield created


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


async def run(pool: WorkerPool, function: Callable[[bytes, bytes], bytes], argument: object = "") -> bytes:
    return await pool.run("client", job(function, argument), b"")


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(GUARD):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def until_idle(pool: WorkerPool) -> None:
    await until(lambda: len(pool._idle) == pool_module.WORKERS)


async def started(pool: WorkerPool) -> None:
    await run(pool, functions.echo)
    await until_idle(pool)


async def until_waiting(pool: WorkerPool, count: int) -> None:
    await until(lambda: len(pool._large) == count)


def ended(pid: int) -> bool:
    """Return True if a process has ended and its parent has noticed."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_workers_start_before_the_first_job() -> None:
    created = WorkerPool()
    async with created.open([functions.__name__]):
        await until_idle(created)


@pytest.mark.parametrize("size", [0, 1, 100_000, 2**20 - 1])
async def test_argument_and_payload_cross(pool: WorkerPool, size: int) -> None:
    assert await pool.run("client", job(functions.echo, "a"), b"x" * size) == b"a" + b"x" * size


async def test_errors_keep_their_type_and_fields(pool: WorkerPool) -> None:
    with pytest.raises(RequestError, match="no such role") as refused:
        await run(pool, functions.refuse, "no such role")
    assert (refused.value.code, refused.value.param) == ("refused", "messages")
    with pytest.raises(Busy, match="later"):
        await run(pool, functions.overload, "later")


@pytest.mark.parametrize("function", [functions.fail, functions.recurse])
async def test_a_defect_is_one_bounded_trace_in_the_log(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture, function: Callable[[bytes, bytes], bytes]
) -> None:
    with pytest.raises(EngineFault) as fault:
        await run(pool, function)
    assert "words" not in fault.value.message
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(record.getMessage().splitlines()) < 100


async def test_a_job_without_memory_fails_alone(pool: WorkerPool) -> None:
    with pytest.raises(RequestError, match="more than 64 MiB") as refused:
        await run(pool, functions.allocate, 10**9)
    assert refused.value.code == "too_large"
    assert await run(pool, functions.allocate, 10**6) == b"1000000"


async def test_a_result_is_bounded(pool: WorkerPool) -> None:
    with pytest.raises(RequestError, match="longer than 1048576 bytes"):
        await run(pool, functions.enlarge, 2**20 + 1)
    assert await run(pool, functions.enlarge, 5) == bytes(5)


async def test_a_job_is_killed_at_its_limit_while_it_holds_the_interpreter(pool: WorkerPool, fifo: Path) -> None:
    pids = []

    async def watch() -> None:
        pids.append(int(await anyio.Path(fifo).read_text()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        with pytest.raises(TimeoutError):
            await pool.run("client", job(functions.hold, fifo, SHORT), b"")
    await until(lambda: ended(pids[0]))
    assert await run(pool, functions.echo, "next") == b"next"


async def test_a_job_without_cpu_time_is_not_at_fault(pool: WorkerPool) -> None:
    with pytest.raises(Busy) as busy:
        await pool.run("client", job(functions.stop, limits=IMPATIENT), b"")
    assert busy.value.code == "preparation_timeout"
    assert await run(pool, functions.echo, "next") == b"next"


async def test_a_job_is_killed_when_its_client_leaves(pool: WorkerPool, fifo: Path) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, pool, functions.hold, fifo)
        pid = int(await anyio.Path(fifo).read_text())
        tasks.cancel_scope.cancel()
    await until(lambda: ended(pid))
    assert await run(pool, functions.echo, "next") == b"next"


@pytest.mark.parametrize("size", [2, LARGE])
async def test_a_job_whose_worker_is_killed_runs_once_more(pool: WorkerPool, tmp_path: Path, size: int) -> None:
    assert await pool.run("client", job(functions.die_once, tmp_path / "died"), bytes(size)) == bytes(size)


async def test_a_job_that_kills_its_workers_fails_alone(pool: WorkerPool, tmp_path: Path) -> None:
    with pytest.raises(WorkerDiedError):
        await run(pool, functions.append_process_id_and_die, tmp_path / "died")
    assert len((tmp_path / "died").read_text().split()) == 2
    assert await run(pool, functions.echo, "next") == b"next"


async def test_an_idle_worker_that_is_killed_fails_no_job(pool: WorkerPool) -> None:
    killed = [await pid_of(pool, large=False), await pid_of(pool, large=True)]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: all(worker.lost for worker in pool._idle.values()))
    assert await pid_of(pool, large=False) not in killed
    assert await pid_of(pool, large=True) not in killed


async def pid_of(pool: WorkerPool, *, large: bool) -> int:
    return int(await pool.run("client", job(functions.process_id), bytes(LARGE if large else 0)))


@pytest.mark.parametrize("garbage", ["\xff" * 100, "\0" * 100, "\0\0\0\x01\0\0\0\0\x90"])
async def test_a_worker_that_sends_no_frames_is_replaced(pool: WorkerPool, garbage: str) -> None:
    with pytest.raises(WorkerDiedError):
        await pool.run("client", Job(job(functions.write_garbage).function, garbage.encode("latin-1"), LIMITS), b"")
    assert await run(pool, functions.echo, "next") == b"next"


async def test_a_worker_that_has_grown_is_replaced(pool: WorkerPool) -> None:
    first = await pid_of(pool, large=True)
    assert await pid_of(pool, large=True) == first
    await pool.run("client", job(functions.allocate, 40 * 2**20), bytes(LARGE))
    assert await pid_of(pool, large=True) != first


async def test_a_small_job_does_not_wait_for_large_ones(pool: WorkerPool, fifo: Path) -> None:
    ends: list[str] = []

    async def large(name: str) -> None:
        await pool.run(name, job(functions.wait, fifo), bytes(LARGE))
        ends.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(large, "first")
        tasks.start_soon(large, "second")
        await until_waiting(pool, 1)
        assert await run(pool, functions.echo, "small") == b"small"
        assert not ends
        await anyio.Path(fifo).write_bytes(b"")
        await until(lambda: len(ends) == 1)
        await anyio.Path(fifo).write_bytes(b"")
    assert len(ends) == 2


@asynccontextmanager
async def busy_with_a_large_job(pool: WorkerPool, fifo: Path) -> AsyncIterator[TaskGroup]:
    """Keep the worker for large jobs busy, beside the tasks of a test."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(pool.run, "a", job(functions.wait, fifo), bytes(LARGE)))
        await until(lambda: pool._idle.keys() == {0})
        yield tasks
        await anyio.Path(fifo).write_bytes(b"")


async def test_clients_take_turns(pool: WorkerPool, fifo: Path) -> None:
    ends: list[str] = []

    async def large(client: str, name: str) -> None:
        await pool.run(client, job(functions.echo), bytes(LARGE))
        ends.append(name)

    async with busy_with_a_large_job(pool, fifo) as tasks:
        for count, name in enumerate(("a1", "a2", "a3", "b1", "b2", "c1"), 1):
            tasks.start_soon(large, name[0], name)
            await until_waiting(pool, count)
    assert ends == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_a_job_that_leaves_the_queue_is_never_run(pool: WorkerPool, fifo: Path) -> None:
    async with busy_with_a_large_job(pool, fifo):
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(partial(pool.run, "b", job(functions.die), bytes(LARGE)))
            await until_waiting(pool, 1)
            leaving.cancel_scope.cancel()
        assert not pool._large


async def test_the_queue_is_bounded(pool: WorkerPool, fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAITING", 1)
    async with busy_with_a_large_job(pool, fifo) as tasks:
        tasks.start_soon(partial(pool.run, "a", job(functions.echo), bytes(LARGE)))
        await until_waiting(pool, 1)
        with pytest.raises(Busy) as busy:
            await run(pool, functions.echo)
        assert busy.value.code == "queue_full"


async def test_a_job_does_not_wait_for_a_worker_for_ever(
    pool: WorkerPool, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAIT", 0)
    async with busy_with_a_large_job(pool, fifo):
        with pytest.raises(Busy) as busy:
            await pid_of(pool, large=True)
        assert busy.value.code == "queue_timeout"


async def test_new_workers_are_warm(pool: WorkerPool, tmp_path: Path) -> None:
    pool.warm_up(job(functions.append_process_id, tmp_path / "warmed"))
    pool.warm_up(job(functions.fail))
    with pytest.raises(WorkerDiedError):
        await run(pool, functions.die)
    await until_idle(pool)
    fresh = await pid_of(pool, large=False)
    assert str(fresh) in (tmp_path / "warmed").read_text().split()


async def test_only_the_latest_warm_ups_are_kept(tmp_path: Path) -> None:
    pool = WorkerPool()
    for name in ("first", *map(str, range(pool_module.MOST_WARM_UPS))):
        pool.warm_up(job(functions.append_process_id, tmp_path / name))
    async with pool.open([functions.__name__]):
        await started(pool)
        fresh = str(await pid_of(pool, large=False))
    assert not (tmp_path / "first").exists()
    assert fresh in (tmp_path / "0").read_text().split()


async def test_a_warm_up_may_fail_in_all_workers_at_once(fifo: Path) -> None:
    pool = WorkerPool()
    pool.warm_up(job(functions.wait, fifo, IMPATIENT))
    async with pool.open([functions.__name__]):
        await started(pool)


async def test_a_warm_up_that_uses_its_worker_up_is_not_tried_again(tmp_path: Path) -> None:
    pool = WorkerPool()
    pool.warm_up(job(functions.allocate, 40 * 2**20))
    pool.warm_up(job(functions.append_process_id, tmp_path / "warmed"))
    async with pool.open([functions.__name__]):
        await started(pool)
        assert str(await pid_of(pool, large=False)) in (tmp_path / "warmed").read_text().split()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().split()[3])


async def test_a_lost_fork_server_is_replaced(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "RESTART_DELAY", 0)
    first = await pid_of(pool, large=False)
    os.kill(parent(first), signal.SIGKILL)
    await until(lambda: ended(first))
    assert await pid_of(pool, large=False) != first


async def test_a_lack_of_files_ends_no_pool(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "RESTART_DELAY", 0)
    pair, failures = socket.socketpair, iter([OSError(errno.EMFILE, os.strerror(errno.EMFILE))])

    def short() -> tuple[socket.socket, socket.socket]:
        for failure in failures:
            raise failure
        return pair()

    monkeypatch.setattr(socket, "socketpair", short)
    with pytest.raises(WorkerDiedError):
        await run(pool, functions.die)
    assert await run(pool, functions.echo, "next") == b"next"
    await until_idle(pool)


async def test_a_lack_of_threads_ends_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "RESTART_DELAY", 0)
    start, failures = anyio.open_process, iter([RuntimeError("can't start new thread")])

    async def open_process(*arguments: Any, **options: Any) -> Process:
        for failure in failures:
            raise failure
        return await start(*arguments, **options)

    monkeypatch.setattr(anyio, "open_process", open_process)
    pool = WorkerPool()
    async with pool.open([functions.__name__]):
        assert await run(pool, functions.echo, "next") == b"next"
        await until_idle(pool)


async def test_jobs_fail_while_no_worker_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool_module, "RESTART_DELAY", 0)
    start, short = anyio.open_process, True

    async def open_process(*arguments: Any, **options: Any) -> Process:
        if short:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return await start(*arguments, **options)

    monkeypatch.setattr(anyio, "open_process", open_process)
    pool = WorkerPool()
    async with pool.open([functions.__name__]):
        for size in (0, LARGE):
            with pytest.raises(Unavailable) as unavailable:
                await pool.run("client", job(functions.echo), bytes(size))
            assert unavailable.value.code == "preparation_unavailable"
        assert len(caplog.records) == 1
        short = False
        await until_idle(pool)
        assert await run(pool, functions.echo, "next") == b"next"
        assert not pool._failures, "the next failure is logged again"


async def test_large_jobs_fail_while_their_worker_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "RESTART_DELAY", 0)
    replace = ForkServer.replace

    def short(server: ForkServer, slot: int) -> AbstractAsyncContextManager[Worker]:
        if slot == pool_module.WORKERS - 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return replace(server, slot)

    monkeypatch.setattr(ForkServer, "replace", short)
    pool = WorkerPool()
    async with pool.open([functions.__name__]):
        with pytest.raises(Unavailable):
            await pool.run("client", job(functions.echo), bytes(LARGE))
        assert await run(pool, functions.echo, "small") == b"small"


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files by /proc")
@pytest.mark.usefixtures("pool")  # so that the connection to `tests.prefork` is open before the first count
async def test_nothing_is_left_of_a_pool() -> None:
    before = open_files()
    pool = WorkerPool()
    async with pool.open([functions.__name__]):
        await started(pool)
        pids = [await pid_of(pool, large=False), await pid_of(pool, large=True)]
        opened = open_files()
        for _ in range(5):
            with pytest.raises(WorkerDiedError):
                await run(pool, functions.die)
        await until_idle(pool)
        assert open_files() == opened
    await checkpoint()
    assert open_files() == before
    assert all(map(ended, pids))


async def expect_end(pool: WorkerPool, fifo: Path) -> None:
    with pytest.raises(Unavailable, match="shutting down"):
        await run(pool, functions.hold, fifo)


async def test_a_pool_ends_while_a_job_runs(fifo: Path) -> None:
    pool = WorkerPool()
    async with anyio.create_task_group() as tasks, pool.open([functions.__name__]):
        tasks.start_soon(expect_end, pool, fifo)
        pid = int(await anyio.Path(fifo).read_text())
    await until(lambda: ended(pid))


async def test_a_fork_server_that_cannot_be_started_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is left open is a warning, and so a failure of this test."""

    async def fail(*_command: object, **_options: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(anyio, "open_process", fail)
    with pytest.raises(FileNotFoundError):
        async with open_fork_server(()):
            pass
