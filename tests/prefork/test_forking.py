"""The project's own processes are forked, and all others are started."""

import os
import subprocess
from pathlib import Path

import anyio
import pytest

from engine.environment import command_for
from gateway.preparation.workers import forkserver
from tests import program
from tests.engine import fake_child
from tests.prefork.client import CHILDREN
from tests.prefork.process import ForkedProcess
from tests.prefork.program import ForkedProgram

pytestmark = pytest.mark.anyio


async def test_an_engine_is_forked_and_ends_with_its_standard_input() -> None:
    process = await anyio.open_process([*command_for(fake_child.__name__), "0"], stderr=None, env={"PATH": ""})
    assert isinstance(process, ForkedProcess)
    assert process.stdin is not None
    assert os.getsid(process.pid) == process.pid
    await process.stdin.aclose()
    assert await process.wait() == process.returncode == 0
    await process.aclose()


async def test_a_forked_process_can_be_killed() -> None:
    process = await anyio.open_process([*command_for(fake_child.__name__), "0"], stderr=None)
    process.kill()
    assert await process.wait() == -9
    await process.aclose()


async def test_an_error_of_a_forked_process_is_its_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    process = await anyio.open_process([*command_for(fake_child.__name__), "no number"], stderr=None)
    assert await process.wait() == 1
    await process.aclose()
    assert "could not convert string to float: 'no number'" in capfd.readouterr().err


async def test_another_program_is_started() -> None:
    process = await anyio.open_process(["/bin/true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=None)
    assert not isinstance(process, ForkedProcess)
    assert await process.wait() == 0


def test_the_program_is_forked() -> None:
    with program.start(["serve", "--slots", "many"]) as process:
        assert isinstance(process, ForkedProgram)
        _, output = process.communicate(program.GUARD)
    assert (process.poll(), process.returncode) == (2, 2)
    assert output.startswith("llama-gateway: --slots 'many': ")


def test_the_engine_of_a_forked_program_is_forked_and_ends_with_it() -> None:
    with program.serving_program() as (process, _):
        (engine,) = program.engines_of(process.pid)
        assert program.FORK_SERVER in Path(f"/proc/{engine}/cmdline").read_bytes()
        with program.must_end(engine):
            process.kill()


def test_the_prepared_modules_are_those_that_run() -> None:
    assert forkserver.__name__ in CHILDREN
    assert fake_child.__name__ in CHILDREN
