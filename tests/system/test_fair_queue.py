"""The fair queue on real sockets, beside the fake model: who is next, and what waiting clients see of it."""

from functools import partial
from typing import Any

import anyio
import pytest

from gateway.middleware.streams.sse import EventStream
from tests.gateway.server.sockets import get
from tests.system.served import GUARD, Served, by, completion, serving

pytestmark = pytest.mark.anyio


async def queue_of(served: Served, client: str) -> list[dict[str, Any]]:
    """Return the queue as a client sees it."""
    queue: list[dict[str, Any]] = await served.content(by(client, get("/slots/queue")))
    return queue


async def send(served: Served, client: str, request_id: str, **body: Any) -> None:
    """Send a request, and wait until the engine has it."""
    before = (await served.metrics()).waiting
    await served.send(by(client, completion(request_id, **{"max_tokens": 400, **body})))
    await served.until(lambda _, metrics: metrics.waiting == before + 1)


async def test_freed_slots_go_to_clients_that_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.client.queue_positions.FRESH", 0.0)
    async with serving(seconds_per_pass=1000.0, slots=1, grace=0.0) as served:
        with anyio.fail_after(GUARD):
            runs = await served.send(by("greedy", completion("runs", max_tokens=400)))
            await served.until_in("prefill", "runs")
            for number in range(20):
                await send(served, "greedy", f"greedy-{number}", priority=-number)
            for name in ("first", "second"):
                await send(served, name, name)
            queue = await queue_of(served, "greedy")
            assert [one["position"] for one in queue] == list(range(1, 23))
            assert [one["request_id"] for one in queue[:4]] == [None, None, "greedy-19", "greedy-18"]
            assert queue[2] | {"seconds": 0} == {
                "position": 3,
                "request_id": "greedy-19",
                "prompt_tokens": len("Once upon a time"),
                "priority": -19,
                "seconds": 0,
            }
            assert [one["request_id"] for one in await queue_of(served, "first")][:2] == ["first", None]
            runs.close()
            await served.until_in("prefill", "first")


async def test_a_waiting_stream_says_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.client.queue_positions.FRESH", 0.0)
    impatient = partial(EventStream, keep_alive=0.01)
    monkeypatch.setattr("gateway.apis.openai.completions.endpoint.EventStream", impatient)
    monkeypatch.setattr("gateway.middleware.streams.silence.TICK", 0.01)
    async with serving(seconds_per_pass=1000.0, slots=1, grace=0.0) as served:
        ahead, waits = served.client(), served.client()
        with anyio.fail_after(GUARD):
            runs = await served.send(completion("runs", max_tokens=5))
            await served.until_in("prefill", "runs")
            for place, client in enumerate((ahead, waits), start=1):
                await client.send(completion(f"waits-{place}", max_tokens=5, stream=True))
                await client.see(b": queued, position %d\n\n" % place)
            ahead.close()
            await waits.see(b": queued, position 1\n\n")
            runs.close()
            await waits.see(b": keep-alive\n\n")
