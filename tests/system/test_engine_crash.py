"""An engine that is killed or hangs: each request gets its one outcome, and a new engine starts by itself."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from engine import EngineState, EngineStatus, Supervision
from tests.engine.driver import continuation
from tests.gateway.server.sockets import Answer, Client, get
from tests.program import engines_of
from tests.system.answers import STREAMED, read_error, read_text
from tests.system.served import GUARD, MANY, PASS, Served, ask, completion, serving

pytestmark = pytest.mark.anyio

PROMPT = "Once upon a time"
TEXT = b'"text":"'
STREAMS = 16
SLOW_RESTART = Supervision(backoff_first=0.5)
WATCHED = Supervision(stall_timeout=1.0, backoff_first=0.5)


class Asker:
    """Sends requests that are in flight together, and keeps their answers."""

    def __init__(self, served: Served, tasks: anyio.abc.TaskGroup) -> None:
        self.answers: dict[str, Answer] = {}
        self._served = served
        self._tasks = tasks

    async def send(self, request_id: str, *, shown: bytes = b"", **body: Any) -> None:
        """Send a request, and wait until `shown` has come."""
        client = self._served.client()
        await client.send(completion(request_id, prompt=PROMPT, **body))
        await client.see(shown)
        self._tasks.start_soon(self._receive, request_id, client)

    async def _receive(self, request_id: str, client: Client) -> None:
        self.answers[request_id] = await client.answer()
        client.close()


@asynccontextmanager
async def asking(served: Served) -> AsyncIterator[Asker]:
    """On exit, wait for every answer; then no request, and one engine, may remain."""
    with anyio.fail_after(GUARD):
        await served.server.count_falls_to(0)
        before = open_files()
        async with anyio.create_task_group() as tasks:
            yield Asker(served, tasks)
        await served.server.count_falls_to(0)
        await served.until_idle()
    assert open_files() == before
    assert len(engines_of(os.getpid())) == 1


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def status_with(served: Served, state: EngineState, restarts: int) -> EngineStatus:
    """Wait for a status."""
    with anyio.fail_after(GUARD):
        status = served.engine.status
        while (status.state, status.restarts) != (state, restarts):
            status = await served.engine.status_changed(status)
        return status


async def health(served: Served) -> tuple[int, dict[str, Any]]:
    answer = await served.answer(get("/health"))
    return answer.status, orjson.loads(answer.body)


async def waits(served: Served, asker: Asker, why: str) -> None:
    """Send requests while the engine restarts: they wait, and the server says that it is not ready."""
    await asker.send("early", max_tokens=5)
    await asker.send("early stream", max_tokens=5, **STREAMED)
    status, told = await health(served)
    assert status == 503
    assert (told["status"], told["detail"]) == ("restarting", why)
    slots = await served.answer(get("/slots"))
    assert slots.status == 503
    assert int(slots.headers["retry-after"]) > 0
    error = read_error(slots)
    assert (error["reason"], error["message"]) == ("engine_unavailable", why)


def were_served(asker: Asker) -> None:
    """Check the answers to the requests of `waits`."""
    for name in ("early", "early stream"):
        assert read_text(asker.answers[name]) == continuation(PROMPT, 5)


async def serves_again(served: Served, restarts: int) -> None:
    with anyio.fail_after(GUARD):
        await served.engine.ready()
    assert await health(served) == (200, {"status": "ok", "restarts": restarts})
    assert (await ask(served, prompt="next", max_tokens=5))["usage"]["completion_tokens"] == 5


async def test_a_killed_engine_ends_or_replays_each_of_sixteen_streams() -> None:
    shown = [f"shown-{index}" for index in range(STREAMS)]
    running, waiting = ["running-0", "running-1"], ["waiting", "waiting stream"]
    slots = len(shown) + len(running)
    async with (
        serving(seconds_per_pass=PASS, slots=slots, grace=0.0, supervision=SLOW_RESTART) as served,
        asking(served) as asker,
    ):
        for name in shown:
            await asker.send(name, shown=TEXT, stream=True, max_tokens=MANY)
        for name in running:
            await asker.send(name, max_tokens=100)
            await served.until_in("decode", name)
        await asker.send("waiting", max_tokens=100)
        await asker.send("waiting stream", max_tokens=100, **STREAMED)
        await served.until(lambda _, metrics: metrics.waiting == len(waiting))
        os.kill(served.engine_pid, signal.SIGKILL)
        status = await status_with(served, EngineState.RESTARTING, 1)
        await waits(served, asker, status.detail)
        await serves_again(served, 1)
    assert "SIGKILL" in status.detail
    were_served(asker)
    assert all(read_error(asker.answers[name])["code"] == "engine_died" for name in shown)
    assert [read_text(asker.answers[name]) for name in running + waiting] == [continuation(PROMPT, 100)] * 4


async def test_a_request_is_replayed_once_and_no_more() -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0) as served, asking(served) as asker:
        await asker.send("unlucky", max_tokens=MANY)
        for deaths in (1, 2):
            await served.until_in("decode", "unlucky")
            os.kill(served.engine_pid, signal.SIGKILL)
            await status_with(served, EngineState.READY, deaths)
    answer = asker.answers["unlucky"]
    assert (answer.status, read_error(answer)["code"]) == (503, "engine_died")
    assert int(answer.headers["retry-after"]) > 0


async def test_generate_reports_a_dead_engine_in_its_envelope() -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0) as served, asking(served) as asker:
        await asker.send("shown", path="/generate", shown=TEXT, stream=True, max_tokens=MANY)
        os.kill(served.engine_pid, signal.SIGKILL)
        await status_with(served, EngineState.READY, 1)
    *_, last, end = asker.answers["shown"].body.split(b"\n\n")
    envelope = orjson.loads(last.removeprefix(b"data: "))
    assert (end, envelope["success"], envelope["error"]["code"]) == (b"", False, "engine_died")


async def test_an_engine_that_hangs_is_killed_and_replaced() -> None:
    """Stopped by a signal, it has work, finishes no step, and does not answer."""
    why = "The engine had work and finished no step for 1 s."
    async with (
        serving(seconds_per_pass=PASS, slots=2, grace=0.0, supervision=WATCHED) as served,
        asking(served) as asker,
    ):
        await asker.send("shown", shown=TEXT, stream=True, max_tokens=MANY)
        await asker.send("replayed", max_tokens=50)
        await served.until_in("decode", "replayed")
        hanging = served.engine_pid
        os.kill(hanging, signal.SIGSTOP)
        stalled = await status_with(served, EngineState.STALLED, 0)
        assert stalled.detail == why
        await status_with(served, EngineState.RESTARTING, 1)
        await waits(served, asker, why)
        await serves_again(served, 1)
        assert served.engine_pid != hanging
    were_served(asker)
    assert read_error(asker.answers["shown"])["code"] == "engine_died"
    assert read_text(asker.answers["replayed"]) == continuation(PROMPT, 50)


async def test_a_client_can_leave_a_hanging_engine_at_once() -> None:
    hasty = replace(WATCHED, answer_timeout=0.2)
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0, supervision=hasty) as served, asking(served):
        client = await served.send(completion("leaver", stream=True, max_tokens=MANY))
        await client.see(TEXT)
        os.kill(served.engine_pid, signal.SIGSTOP)
        client.close()
        await served.connections_fall_to(0)
        await status_with(served, EngineState.READY, 1)
        served.engine._supervisor.limits = WATCHED  # that the new engine answers late is no failure


async def test_an_engine_with_an_endless_pass_is_killed_and_replaced() -> None:
    """The replayed request runs into a second stall, and then fails."""
    supervision = Supervision(stall_timeout=0.3)
    async with (
        serving(seconds_per_pass=1000.0, slots=2, grace=0.0, supervision=supervision) as served,
        asking(served) as asker,
    ):
        await asker.send("whole", max_tokens=5)
        await asker.send("stream", max_tokens=5, stream=True)
        await status_with(served, EngineState.STALLED, 0)
        await status_with(served, EngineState.STALLED, 1)
        await status_with(served, EngineState.READY, 2)
        assert await health(served) == (200, {"status": "ok", "restarts": 2})
    for answer in asker.answers.values():
        assert (answer.status, read_error(answer)["code"]) == (503, "engine_died")


async def test_a_killed_real_engine_is_replaced() -> None:
    shown = [f"shown-{index}" for index in range(STREAMS)]
    body: dict[str, Any] = {"temperature": 0, "max_tokens": 30}
    async with serving(slots=STREAMS, context=8192, grace=0.0) as served:
        alone = await ask(served, **body)
        async with asking(served) as asker:
            for name in shown:
                await asker.send(name, shown=TEXT, stream=True, max_tokens=8000)
            await asker.send("whole", **body)
            await asker.send("stream", **STREAMED, **body)
            await served.until(lambda _, metrics: metrics.waiting == 2)
            os.kill(served.engine_pid, signal.SIGKILL)
            await status_with(served, EngineState.READY, 1)
        again = await ask(served, **body)
    text = alone["choices"][0]["text"]
    assert all(read_error(asker.answers[name])["code"] == "engine_died" for name in shown)
    assert read_text(asker.answers["whole"]) == read_text(asker.answers["stream"]) == text
    assert again["choices"][0]["text"] == text
