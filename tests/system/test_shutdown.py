"""Shutdown of the whole program: every client gets a definite end, and the program ends in bounded time."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import orjson
import pytest

from engine import Supervision
from gateway.server.connection import Connection
from gateway.server.transport import Transport
from tests.engine.driver import continuation
from tests.gateway.server.sockets import Client, get
from tests.program import Process, engines_of, must_end, said, serving_program
from tests.system.answers import STREAMED, read_error, read_text
from tests.system.served import GUARD, MANY, PASS, Served, completion, serving

pytestmark = pytest.mark.anyio

PATIENT, HASTY = 3600.0, 0.1


@asynccontextmanager
async def shutting_down(served: Served, *clients: Client) -> AsyncIterator[None]:
    """Begin the shutdown; on exit, the clients close and the server must end."""
    with anyio.fail_after(GUARD):
        served.shutdown.set()
        yield
        for client in clients:
            client.close()
        await served.stopped.wait()


async def test_a_new_connection_is_refused_during_shutdown() -> None:
    async with serving(seconds_per_pass=PASS, grace=PATIENT) as served:
        client = await served.send(completion("last", stream=True, max_tokens=MANY))
        await client.see(b'"text":"')
        async with shutting_down(served, client):
            await served.draining.wait()
            with pytest.raises(ConnectionRefusedError):
                served.client()


async def test_every_request_is_served_to_its_end_within_the_grace_period() -> None:
    """One client streams, one waits for the whole answer, one waits in the queue."""
    async with serving(seconds_per_pass=PASS, slots=2, grace=PATIENT) as served:
        stream, whole, queued = clients = [served.client() for _ in range(3)]
        await stream.send(completion("stream", prompt="a", max_tokens=50, **STREAMED))
        await whole.send(completion("whole", prompt="b", max_tokens=50))
        await stream.see(b'"text":"')
        await served.until_in("decode", "whole")
        await queued.send(completion("queued", prompt="c", max_tokens=50, **STREAMED))
        await served.until(lambda _, metrics: metrics.waiting == 1)
        async with shutting_down(served, *clients):
            texts = [read_text(await client.answer()) for client in clients]
            assert [await client.read_to_end() for client in clients] == [b""] * 3
    assert texts == [continuation(prompt, 50) for prompt in "abc"]


async def test_every_request_gets_an_error_and_is_freed_after_the_grace_period() -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=HASTY) as served:
        stream, whole, queued = clients = [served.client() for _ in range(3)]
        await stream.send(completion("stream", stream=True, max_tokens=MANY))
        await whole.send(completion("whole", max_tokens=MANY))
        await stream.see(b'"text":"')
        await served.until_in("decode", "whole")
        await queued.send(completion("queued", stream=True, max_tokens=MANY))
        await served.until(lambda _, metrics: metrics.waiting == 1)
        async with shutting_down(served, *clients):
            answers = [await client.answer() for client in clients]
            assert [await client.read_to_end() for client in clients] == [b""] * 3
        await served.until_idle()
    assert [answer.status for answer in answers] == [200, 503, 503]
    assert [read_error(answer)["code"] for answer in answers] == ["shutting_down"] * 3


async def test_a_started_health_request_reports_draining() -> None:
    """Idle connections are closed at once, so only a connection with a started request can still ask."""
    async with serving(seconds_per_pass=PASS, grace=PATIENT) as served:
        client = served.client()
        client.write(get("/health", headers="content-length: 1\r\nexpect: 100-continue\r\n"))
        await client.read_until(b"\r\n\r\n")
        async with shutting_down(served, client):
            await served.draining.wait()
            client.write(b" ")
            answer = await client.answer()
    assert answer.status == 503
    assert orjson.loads(answer.body) == {"status": "draining", "detail": "The server is stopping.", "restarts": 0}


async def test_a_client_that_does_not_read_cannot_delay_the_shutdown() -> None:
    async with serving(seconds_per_pass=0.0, slots=1, grace=HASTY, alias="x" * 40_000) as served:
        client = await served.send(completion("deaf", stream=True, max_tokens=MANY), receive_buffer=2048)
        await until_nothing_more_is_sent(served)
        async with shutting_down(served):
            pass
        await served.until_idle()
        client.close()


async def until_nothing_more_is_sent(served: Served) -> None:
    with anyio.fail_after(GUARD):
        while not any(unsent(connection) for connection in served.server.connections):
            await served.metrics()


def unsent(connection: Connection) -> bool:
    assert isinstance(connection._transport, Transport)
    return connection._transport.has_unsent


async def test_a_hanging_engine_cannot_delay_the_shutdown() -> None:
    supervision = Supervision(answer_timeout=0.1, drain_timeout=0.1)
    async with serving(seconds_per_pass=PASS, grace=HASTY, supervision=supervision) as served:
        client = await served.send(completion("stream", stream=True, max_tokens=MANY))
        await client.see(b'"text":"')
        os.kill(served.engine_pid, signal.SIGSTOP)
        async with shutting_down(served, client):
            assert read_error(await client.answer())["code"] == "shutting_down"
    assert not engines_of(os.getpid())


def end_of(process: Process) -> tuple[int, str]:
    """Return the exit code, and the last line of output."""
    _, said = process.communicate(timeout=GUARD)
    assert "Traceback" not in said
    return process.returncode, said.splitlines()[-1]


async def active_tokens(port: int) -> list[int]:
    client = Client(port)
    await client.send(get("/slots"))
    slots = orjson.loads((await client.answer()).body)
    client.close()
    return [slot["active_tokens"] for slot in slots]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_program_finish(stop: signal.Signals, anyio_backend: str) -> None:
    with serving_program("--grace", "3600", "--async-backend", anyio_backend) as (process, port):
        (engine,) = engines_of(process.pid)
        client = Client(port)
        with anyio.fail_after(GUARD):
            await client.send(completion("in time", max_tokens=200, **STREAMED))
            await client.see(b'"text":"')
            with must_end(engine):
                process.send_signal(stop)
                answer = await client.answer()
                client.close()
                code, last = end_of(process)
    assert read_text(answer)
    assert code == 0
    assert last.endswith("INFO gateway stopped")


async def test_a_signal_ends_the_program_in_bounded_time(anyio_backend: str) -> None:
    """One client could continue for long; another has stopped reading, and a long name makes its events large."""
    flags = ("--grace", "0.1", "--slots", "2", "--context", "16384", "--alias", "x" * 4000)
    with serving_program(*flags, "--async-backend", anyio_backend) as (process, port):
        (engine,) = engines_of(process.pid)
        client, deaf = Client(port), Client(port, receive_buffer=2048)
        with anyio.fail_after(GUARD):
            await deaf.send(completion("deaf", stream=True, max_tokens=15_000))
            while max(await active_tokens(port)) < 300:
                pass
            await client.send(completion("on and on", stream=True, max_tokens=15_000))
            await client.see(b'"text":"')
            with must_end(engine):
                process.send_signal(signal.SIGTERM)
                answer = await client.answer()
                client.close()
                code, last = end_of(process)
        deaf.close()
    assert read_error(answer)["code"] == "shutting_down"
    assert code == 0
    assert last.endswith("INFO gateway stopped")


async def test_a_second_signal_ends_the_program_at_once(anyio_backend: str) -> None:
    with serving_program("--grace", "3600", "--context", "16384", "--async-backend", anyio_backend) as (process, port):
        (engine,) = engines_of(process.pid)
        client = Client(port)
        with anyio.fail_after(GUARD):
            await client.send(completion("on and on", stream=True, max_tokens=15_000))
            await client.see(b'"text":"')
            with must_end(engine):
                process.send_signal(signal.SIGINT)
                said(process, "SIGINT: stopping; open requests have 3600 s")
                process.send_signal(signal.SIGINT)
                said(process, "SIGINT: ending at once, which cuts the open requests")
                process.wait(GUARD)
        client.close()
    assert process.returncode == -signal.SIGINT
