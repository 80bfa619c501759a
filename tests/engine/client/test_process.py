"""The child process: its environment, its pipes and its end."""

import errno
import os
import signal
from pathlib import Path

import anyio
import pytest

from engine.client.process import EngineProcess, child_environment
from engine.environment import HUGE_PAGES
from engine.protocol.messages import SetLogLevel
from tests.engine.client.harness import GUARD


def open_files() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - also on macOS


async def run(command: str) -> int | None:
    process = await EngineProcess.start([command])
    assert await process.receive() == []
    return await process.end(GUARD, GUARD)


@pytest.mark.anyio
async def test_no_pipe_of_an_ended_process_stays_open(tmp_path: Path) -> None:
    with anyio.fail_after(GUARD):
        assert await run("/bin/true") == 0
        before = open_files()
        for _ in range(3):
            assert await run("/bin/true") == 0
            with pytest.raises(FileNotFoundError):
                await EngineProcess.start([str(tmp_path / "nothing")])
        assert open_files() == before


@pytest.mark.anyio
async def test_a_process_without_files_for_both_pipes_leaves_none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = iter([os.pipe])

    def pipe() -> tuple[int, int]:
        for create in pipes:
            return create()
        raise OSError(errno.EMFILE, "Too many open files")

    before = open_files()
    monkeypatch.setattr(os, "pipe", pipe)
    with pytest.raises(OSError, match="Too many open files"):
        await EngineProcess.start(["/bin/true"])
    assert open_files() == before


@pytest.mark.anyio
async def test_a_message_to_a_child_that_has_ended_is_dropped() -> None:
    with anyio.fail_after(GUARD):
        process = await EngineProcess.start(["/bin/true"])
        assert await process.receive() == []
        process.send(SetLogLevel("debug"))
        assert await process.end(GUARD, GUARD) == 0
        process.send(SetLogLevel("debug"))
        process.kill()


@pytest.mark.anyio
async def test_a_child_may_die_while_a_message_is_written_to_it() -> None:
    with anyio.fail_after(GUARD):
        process = await EngineProcess.start(["/bin/sleep", "60"])
        process.send(SetLogLevel("x" * 10**6))
        async with anyio.create_task_group() as group:
            group.start_soon(process.write)
            await anyio.wait_all_tasks_blocked()
            process.kill()
        assert await process.end(GUARD, GUARD) == -signal.SIGKILL


@pytest.mark.anyio
async def test_a_child_that_still_writes_at_its_end_is_not_blocked() -> None:
    process = await EngineProcess.start(["/bin/sh", "-c", "cat >/dev/null; head -c 1000000 /dev/zero"])
    assert await process.end(GUARD, GUARD) == 0


@pytest.mark.anyio
async def test_a_started_child_has_the_environment_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "sk-secret")
    process = await EngineProcess.start(["/usr/bin/env"])
    lines = b""
    while data := await process._stdout.receive():
        lines += data
    assert await process.end(GUARD, GUARD) == 0
    assert b"OPENBLAS_NUM_THREADS=1\n" in lines
    assert b"sk-secret" not in lines


def test_the_child_gets_defaults_for_its_libraries() -> None:
    given = child_environment({"PATH": "/bin"})
    assert given == {"PATH": "/bin", "OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "20000", **HUGE_PAGES}


@pytest.mark.parametrize("own", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_the_users_choice_of_waiting_counts(own: dict[str, str]) -> None:
    assert child_environment(own) == {"OPENBLAS_NUM_THREADS": "1", **HUGE_PAGES, **own}


@pytest.mark.parametrize("name", ["LLAMA_API_KEY", "LLAMA_GATEWAY_API_KEY", "LLAMA_GATEWAY_KEYS", "HF_TOKEN"])
def test_the_child_gets_no_secret(name: str) -> None:
    assert name not in child_environment({name: "sk-secret"})
