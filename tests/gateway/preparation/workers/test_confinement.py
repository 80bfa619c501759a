"""The confinement of workers: what a template that escapes from its sandbox cannot do."""

import ctypes
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from gateway.preparation.workers.confinement import confine
from gateway.preparation.workers.pool import WorkerPool
from tests.gateway.preparation.workers import functions
from tests.gateway.preparation.workers.test_pool import run
from tests.program import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


def allows_namespaces() -> bool:
    """Return True if this kernel lets a process of this user leave the network."""
    program = f"from {confine.__module__} import confine; raise SystemExit(0 if confine() else 1)"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    created = WorkerPool()
    async with created.open([functions.__name__]):
        yield created


async def test_a_worker_has_no_network(pool: WorkerPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not allows_namespaces():
            pytest.skip("this kernel allows this user no network namespace")
        assert await run(pool, functions.connect, port) == b"ENETUNREACH"


async def test_a_worker_gains_no_privileges(pool: WorkerPool) -> None:
    assert (await run(pool, functions.privileges)).split() == [b"NoNewPrivs:", b"1"]


async def test_the_kernel_takes_a_worker_before_the_engine(pool: WorkerPool) -> None:
    assert await run(pool, functions.oom_score) == b"1000"


async def test_a_worker_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLAMA_API_KEY", "LLAMA_GATEWAY_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "sk-secret")
    monkeypatch.setenv("OTHER_VARIABLE", "shown")
    pool = WorkerPool()
    async with pool.open([functions.__name__]):
        found = await run(pool, functions.variables)
    assert b"OTHER_VARIABLE=shown" in found
    assert b"sk-secret" not in found


async def test_a_kernel_that_refuses_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def prctl(self, *_: int) -> int:
            return -1

        def unshare(self, _flags: int) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Refusing())
    assert confine() is False
