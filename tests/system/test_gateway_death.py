"""`kill -9` of the gateway: the engine process detects it and ends, in every state."""

import os
import signal
import socket
import time
from typing import Any

import httpx
import pytest

from tests.models import model_path
from tests.program import GUARD, engines_of, must_end, program_of_users, said, serving_program
from tests.system.served import completion

STATES: dict[str, dict[str, Any]] = {
    "decode": {"max_tokens": 10_000, "stream": True},
    "prefill": {"prompt": [2] * 16_000, "max_tokens": 1},
}


def until_in(state: str, port: int) -> None:
    deadline = time.monotonic() + GUARD
    while httpx.get(f"http://127.0.0.1:{port}/slots", trust_env=False, timeout=GUARD).json()[0]["state"] != state:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_loading_engine_ends_with_its_killed_gateway() -> None:
    """The engine is stopped by a signal, so that it is surely still loading when the gateway dies."""
    with program_of_users("--model", str(model_path())) as process:
        said(process, "loading")
        while not (engines := engines_of(process.pid)):
            assert process.poll() is None
        os.kill(engines[0], signal.SIGSTOP)
        with must_end(engines[0]):
            process.kill()
            process.wait()
            os.kill(engines[0], signal.SIGCONT)
        assert process.stderr is not None
        assert "listening" not in process.stderr.read()


def test_an_idle_engine_ends_with_its_killed_gateway() -> None:
    with serving_program() as (process, _port):
        (engine,) = engines_of(process.pid)
        with must_end(engine):
            process.kill()


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("state", STATES)
def test_a_working_engine_ends_with_its_killed_gateway(state: str, backend: str) -> None:
    flags = ("--slots", "1", "--context", "16384", "--async-backend", backend)
    with serving_program(*flags) as (process, port), socket.create_connection(("127.0.0.1", port)) as client:
        (engine,) = engines_of(process.pid)
        client.sendall(completion("the last one", **STATES[state]))
        until_in(state, port)
        with must_end(engine):
            process.kill()
