"""Resumable streams: they go on without their clients, and are read again, only where a client asks for it."""

import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest
from starlette.types import ASGIApp

from engine import Finished, FinishReason, Text
from engine.errors import Unavailable
from gateway.middleware.caller import Caller, with_caller
from gateway.middleware.errors import RefusedError
from gateway.middleware.streams import kept_stream, resumable
from gateway.middleware.streams.direct import Sink
from gateway.middleware.streams.resumable import HEADER, MAX_NAME, ResumableStreams, StreamLimits
from gateway.middleware.streams.sse import DONE, EventStream, NextEvents
from tests.gateway.application import gateway_of
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.fake_engine import FakeEngine, FakeGeneration, say_nothing, wait_in_queue

pytestmark = pytest.mark.anyio

BODY = b'{"prompt":"x","stream":true}'
NAME = "conversation::org/model:Q8"
QUERY = "conv_id=conversation%3A%3Aorg%2Fmodel%3AQ8"


@asynccontextmanager
async def serving(engine: FakeEngine, **changes: Any) -> AsyncIterator[ASGIApp]:
    gateway = gateway_of(engine, **changes)
    async with gateway.streams.open():
        yield gateway.app


def asking(app: ASGIApp, path: str = "/v1/completions", name: str = NAME, body: bytes = BODY) -> AsgiCall:
    return AsgiCall(app, path, body, headers={HEADER: name})


async def read(app: ASGIApp, query: str = QUERY, **headers: str) -> AsgiCall:
    return await AsgiCall(app, "/v1/stream", method="GET", query=query, headers=headers).run()


async def delete(app: ASGIApp, query: str = QUERY) -> AsgiCall:
    return await AsgiCall(app, "/v1/stream", method="DELETE", query=query).run()


def finish(generation: FakeGeneration) -> None:
    generation.put(Text(0, "b"))
    generation.put(Finished(0, "", FinishReason.STOP, 2, 0, (), None))


def texts(content: bytes) -> list[str]:
    events = [line.removeprefix(b"data: ") for line in content.split(b"\n\n") if line.startswith(b"data: {")]
    return [choice["text"] for event in events for choice in orjson.loads(event)["choices"]]


async def left_alone(app: ASGIApp, engine: FakeEngine) -> FakeGeneration:
    """Return the generation of a stream whose client has left after its first text."""
    async with asking(app).running() as call:
        await anyio.wait_all_tasks_blocked()
        engine.generations[-1].put(Text(0, "a"))
        await call.sent(1)
        call.hang_up()
    return engine.generations[-1]


async def test_a_stream_goes_on_without_its_client_and_is_read_again() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine) as app:
        generation = await left_alone(app, engine)
        assert generation.left is None
        finish(generation)
        again = await read(app)
        assert again.header("content-type") == "text/event-stream; charset=utf-8"
        assert again.content.endswith(b"data: [DONE]\n\n")
        assert texts(again.content) == ["a", "b", ""]
        rest = await read(app, f"{QUERY}&from=40")
        assert rest.content == again.content[40:]


async def test_a_reader_follows_a_running_stream() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine) as app, anyio.create_task_group() as tasks:
        generation = await left_alone(app, engine)
        reader = AsgiCall(app, "/v1/stream", method="GET", query=QUERY)
        tasks.start_soon(reader.run)
        await reader.sent(1)
        finish(generation)
    assert reader.content.endswith(b"data: [DONE]\n\n")


async def test_by_default_a_client_that_is_gone_is_gone() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine) as app:
        for call in (AsgiCall(app, "/v1/completions", BODY), asking(app, body=b'{"prompt":"x"}')):
            async with call.running():
                await anyio.wait_all_tasks_blocked()
                call.hang_up()
            assert engine.generations[-1].left is not None
        assert (await read(app)).status == 404


async def test_no_stream_is_kept_where_the_operator_allows_none() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine, resumable_streams=0) as app:
        assert (await left_alone(app, engine)).left is not None


async def test_a_client_may_end_a_stream_that_it_has_left() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine) as app:
        generation = await left_alone(app, engine)
        for _ in range(2):
            assert (await delete(app)).status == 204
        await anyio.wait_all_tasks_blocked()
        assert generation.left == "the client ended the stream"
        assert (await read(app)).status == 404


async def test_the_end_of_the_server_ends_a_stream() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine) as app:
        generation = await left_alone(app, engine)
    assert generation.left == "the server is shutting down"


async def test_a_new_stream_takes_the_place_of_one_with_its_name() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine, background_limit=1) as app:
        first, second = await left_alone(app, engine), await left_alone(app, engine)
        await anyio.wait_all_tasks_blocked()
        assert (first.left, second.left) == ("the client ended the stream", None)


async def test_a_failure_before_the_first_text_is_a_status() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine, queue_timeout=0.001) as app:
        engine.script = wait_in_queue
        assert (await asking(app).run()).status == 503
        assert (await asking(app, body=b'{"prompt":1,"stream":true}').run()).status == 400


async def test_only_the_owner_finds_a_stream() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine) as app:
        await left_alone(app, engine)
        body = {"conversation_ids": ["conversation", "other", "conv", ""]}
        [state] = (await post(app, "/v1/streams/lookup", body)).json
        assert (state["conversation_id"], state["is_done"], state["completed_at"]) == (NAME, False, 0)
        assert state["total_bytes"] > 0
        assert (await post(app, "/v1/streams/lookup", body, authorization="Bearer other")).json == []
        assert (await read(app, authorization="Bearer other")).status == 404


async def test_running_streams_and_kept_ones_are_limited() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine, resumable_streams=2, background_limit=1) as app:
        generation = await left_alone(app, engine)
        assert (await asking(app, name="another").run()).status == 429
        finish(generation)
        for name in ("b", "c"):
            await anyio.wait_all_tasks_blocked()
            engine.script = finish
            assert (await asking(app, name=name).run()).status == 200
        assert [(await read(app, f"conv_id={name}")).status for name in ("b", "c")] == [200, 200]
        assert (await read(app)).status == 404


async def test_no_running_stream_of_another_client_makes_room() -> None:
    engine = FakeEngine(say_nothing)
    async with serving(engine, resumable_streams=1) as app:
        generation = await left_alone(app, engine)
        other = AsgiCall(app, "/v1/completions", BODY, headers={HEADER: NAME, "authorization": "Bearer other"})
        error = (await other.run()).json["error"]
        assert (error["code"], error["type"]) == ("stream_limit_reached", "rate_limit_error")
        assert other.header("retry-after") == "1"
        assert generation.left is None


async def test_old_bytes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_stream, "MOST_BYTES", 20)
    async with serving(FakeEngine()) as app:
        await asking(app).run()
        lost = await read(app)
        assert (lost.status, lost.json["error"]["message"]) == (400, "Stream offset lost, please restart")
        size = (await post(app, "/v1/streams/lookup", {"conversation_ids": [NAME]})).json[0]["total_bytes"]
        assert (await read(app, f"{QUERY}&from={size - 20}")).content.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("query", ["", "conv_id=", f"{QUERY}&from=-1", f"{QUERY}&from=x", f"{QUERY}&from={'9' * 4400}"])
async def test_wrong_parameters_are_a_400(query: str) -> None:
    async with serving(FakeEngine()) as app:
        await asking(app).run()
        assert (await read(app, query)).status == 400


async def test_a_long_name_is_a_400() -> None:
    async with serving(FakeEngine()) as app:
        longest, longer = [await asking(app, name="x" * length).run() for length in (MAX_NAME, MAX_NAME + 1)]
    assert (longest.status, longer.status, longer.json["error"]["code"]) == (200, 400, "invalid_value")


class Connection:
    """The connection of the request that began a stream."""

    ready = True

    def offer(self, data: bytes) -> None:
        raise AssertionError(data)


class Ended:
    """Events that have ended, as `DirectEvents`."""

    def __init__(self) -> None:
        self.sinks: list[Sink] = []

    async def __call__(self) -> Iterable[bytes]:
        return ()

    def pass_on(self, sink: Sink) -> None:
        self.sinks.append(sink)


async def test_a_kept_stream_sends_nothing_to_the_connection_of_its_request() -> None:
    events = Ended()

    @asynccontextmanager
    async def source() -> AsyncIterator[NextEvents]:
        yield events

    streams = ResumableStreams(StreamLimits(timeout=9, most=1, running=1))
    client = Caller(request_id="r", direct=Connection())
    caller = streams.caller_of(client, NAME)
    async with streams.open():
        streams.keep(caller, NAME, EventStream(source), with_caller({"type": "http"}, client))
        stream = streams.find(caller.credentials, NAME)
        assert stream is not None
        assert await stream.read(0) == DONE
    assert events.sinks == []


@asynccontextmanager
async def silent() -> AsyncIterator[NextEvents]:
    async def never() -> Iterable[bytes]:
        await anyio.sleep_forever()
        return ()

    yield never


async def test_a_stream_holds_its_model_until_it_ends_itself() -> None:
    streams, client = ResumableStreams(StreamLimits(timeout=1000, most=1, running=1)), Caller(request_id="r")
    caller, released = streams.caller_of(client, NAME), []
    caller.held.callback(lambda: released.append(NAME))
    client.closing.deadline = 0.0
    async with streams.open():
        streams.keep(caller, NAME, EventStream(silent), with_caller({"type": "http"}, client))
        assert client.closing.deadline == math.inf, "that of the stream is its own"
        client.held.close()
        await anyio.wait_all_tasks_blocked()
        assert released == []
        streams.drop(caller.credentials, NAME)
        await anyio.wait_all_tasks_blocked()
        assert released == [NAME]


async def test_no_stream_begins_once_the_server_has_stopped() -> None:
    streams, client = ResumableStreams(StreamLimits(timeout=1000, most=1, running=1)), Caller(request_id="r")
    async with streams.open():
        pass
    with pytest.raises(Unavailable, match="shutting down"):
        streams.keep(streams.caller_of(client, NAME), NAME, EventStream(silent), with_caller({"type": "http"}, client))


async def test_the_stream_that_ended_first_makes_room() -> None:
    streams, client = ResumableStreams(StreamLimits(timeout=1000, most=2, running=2)), Caller(request_id="r")
    async with streams.open():
        for name, ended_at in (("later", 20), ("first", 10), ("new", 30)):
            caller = streams.caller_of(client, name)
            streams.keep(caller, name, EventStream(silent), with_caller({"type": "http"}, client))
            stream = streams.find(caller.credentials, name)
            assert stream is not None
            stream.ended_at = ended_at
        assert [one for one in ("later", "first", "new") if streams.find(client.credentials, one)] == ["later", "new"]


async def test_a_stream_is_forgotten_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable, "KEPT_SECONDS", 0)
    streams, client = ResumableStreams(StreamLimits(timeout=1000, most=1, running=1)), Caller(request_id="r")

    @asynccontextmanager
    async def source() -> AsyncIterator[NextEvents]:
        yield Ended()

    async with streams.open():
        caller = streams.caller_of(client, NAME)
        streams.keep(caller, NAME, EventStream(source), with_caller({"type": "http"}, client))
        assert streams.find(caller.credentials, NAME) is not None
        await anyio.wait_all_tasks_blocked()
        assert streams.find(caller.credentials, NAME) is None


async def test_a_stream_has_the_time_of_a_request() -> None:
    streams, caller = ResumableStreams(StreamLimits(timeout=0.001, most=1, running=1)), Caller(request_id="r")
    async with streams.open():
        streams.keep(streams.caller_of(caller, NAME), NAME, EventStream(silent), with_caller({"type": "http"}, caller))
        stream = streams.find(caller.credentials, NAME)
        assert stream is not None
        assert await stream.read(0) == b""
        assert isinstance(stream.failure, RefusedError)
        assert stream.failure.problem.status == 504
