"""The end of a streamed response while the store works: the client and the store agree."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest
import trio.testing

from engine import Finished, FinishReason, PromptProgress, Text, Unavailable
from gateway.apis.openai.responses import background, endpoint
from gateway.apis.openai.responses.work import ResponseWork
from gateway.apis.openai.shared_store.storage import UNAVAILABLE
from gateway.app import Gateway
from gateway.middleware.caller import Cause, Closing
from gateway.middleware.errors import RefusedError
from gateway.middleware.streams import silence
from gateway.middleware.streams.sse import EventStream
from tests.gateway.apis.openai.responses.asking import BACKGROUND, PATH, answering, chatting, running
from tests.gateway.application import gateway_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine, FakeGeneration, say_nothing

pytestmark = pytest.mark.anyio

ASKED = orjson.dumps({"input": "Hi", "stream": True})


def the_deadline_passes(closing: Closing) -> None:
    assert closing.work is not None
    if math.isfinite(closing.deadline):
        closing.work.deadline = closing.deadline = anyio.current_time()


def the_server_stops(closing: Closing) -> None:
    assert closing.work is not None
    closing.set(Closing("the server is shutting down", Cause.SHUTDOWN, Unavailable("The server is shutting down.")))
    closing.work.cancel()


def begin(generation: FakeGeneration) -> None:
    generation.put(Text(0, "Hel", ()))


async def stream(engine: FakeEngine, gateway: Gateway) -> list[dict[str, Any]]:
    """Return the events of a response that has a clean end."""
    async with AsgiCall(gateway.app, PATH, ASKED).running() as call:
        await call.sent(1)
        engine.generations[0].put(Finished(0, "lo", FinishReason.STOP, 2, 0))
    assert call.complete
    return [orjson.loads(line[6:]) for line in call.content.splitlines() if line.startswith(b"data: ")]


def interrupt_at_the_end(monkeypatch: pytest.MonkeyPatch, interruption: Callable[[Closing], None]) -> None:
    """Interrupt a response right after it was stored."""
    end = ResponseWork.end

    async def interrupted(work: ResponseWork) -> None:
        await end(work)
        interruption(work.caller.closing)

    monkeypatch.setattr(ResponseWork, "end", interrupted)


@pytest.mark.parametrize("interruption", [the_deadline_passes, the_server_stops])
async def test_a_stored_response_ends_with_its_last_event(
    monkeypatch: pytest.MonkeyPatch, interruption: Callable[[Closing], None]
) -> None:
    interrupt_at_the_end(monkeypatch, interruption)
    engine = chatting(begin)
    gateway = gateway_of(engine)
    *_, last = await stream(engine, gateway)
    assert last["type"] == "response.completed"
    assert (await get(gateway.app, f"{PATH}/{last['response']['id']}")).json == last["response"]


async def test_a_whole_response_that_is_stored_at_its_deadline_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at_the_end(monkeypatch, the_deadline_passes)
    gateway = gateway_of(chatting(answering("Hello")))
    reply = await post(gateway.app, PATH, {"input": "Hi"})
    assert reply.status == 200, reply.content
    assert (await get(gateway.app, f"{PATH}/{reply.json['id']}")).json == reply.json


class TestDeadline:
    """On a clock that stands still until it is set."""

    clock = trio.testing.MockClock()

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {"clock": self.clock}

    async def test_a_background_response_has_a_deadline(self) -> None:
        engine = chatting(say_nothing)
        async with running(engine, request_timeout=1) as app:
            made = (await post(app, PATH, BACKGROUND)).json
            self.clock.jump(1)
            await anyio.wait_all_tasks_blocked()
            failed = (await get(app, f"{PATH}/{made['id']}")).json
        assert failed["error"]["message"] == "The request took longer than this server allows."
        assert engine.generations[0].left == "the request's deadline passed"

    async def test_a_background_response_keeps_its_answer_if_it_is_stored_after_its_deadline(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        end, tries, stored = ResponseWork.end, itertools.count(), anyio.Event()

        async def end_later(work: ResponseWork) -> None:
            if not next(tries):
                self.clock.jump(1)
                raise RefusedError(UNAVAILABLE)
            await end(work)
            stored.set()

        monkeypatch.setattr(ResponseWork, "end", end_later)
        monkeypatch.setattr(background, "PAUSE", 0)
        gateway = gateway_of(chatting(answering("Hello")))
        gateway.background._timeout = 1
        async with gateway.background.open():
            made = (await post(gateway.app, PATH, BACKGROUND)).json
            await stored.wait()
            response = (await get(gateway.app, f"{PATH}/{made['id']}")).json
        assert (response["status"], response["error"]) == ("completed", None)


async def refuse(_work: ResponseWork) -> None:
    """Fail to store a response."""
    await anyio.lowlevel.checkpoint()
    raise RefusedError(UNAVAILABLE)


async def test_a_response_that_cannot_be_stored_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponseWork, "end", refuse)
    engine = chatting(begin)
    events = await stream(engine, gateway_of(engine))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    *_, failed, error = events
    assert (failed["type"], error["type"]) == ("response.failed", "error")
    assert (failed["response"]["status"], failed["response"]["completed_at"]) == ("failed", None)


@pytest.mark.parametrize("progress", [(), (Text(0, "", progress=PromptProgress(2, 0, 2, 0.5)),)])
async def test_a_failed_stream_has_its_first_events_where_they_came_with_the_last_ones(
    monkeypatch: pytest.MonkeyPatch, progress: Sequence[Text]
) -> None:
    monkeypatch.setattr(ResponseWork, "end", refuse)
    monkeypatch.setattr(silence, "TICK", 0.01)
    monkeypatch.setattr(endpoint, "EventStream", partial(EventStream, keep_alive=0.01))
    engine = chatting(say_nothing)
    gateway = gateway_of(engine)
    body = orjson.dumps({"input": "Hi", "stream": True, "return_progress": True})
    async with gateway.silences.open(), AsgiCall(gateway.app, PATH, body).running() as call:
        await call.sent(1)
        engine.generations[0].put(*progress, Finished(0, "Hello", FinishReason.STOP, 2, 0))
    events = [orjson.loads(line[6:]) for line in call.content.splitlines() if line.startswith(b"data: ")]
    begun = ["created", "in_progress", *("in_progress" for _ in progress)]
    assert [event["type"].removeprefix("response.") for event in events] == [*begun, "failed", "error"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["response"]["status"] for event in events[:2]] == ["in_progress", "in_progress"]
