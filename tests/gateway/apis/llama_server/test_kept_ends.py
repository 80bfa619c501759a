"""Ends of kept streams: each failure is one event in the shape of the stream's API, with its true cause."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import orjson
import pytest

from engine import Finished, FinishReason
from gateway.apis.endpoint import never_streams
from gateway.app import Gateway
from gateway.middleware.caller import NO_CREDENTIALS, Cause
from gateway.middleware.streams import kept_stream
from gateway.middleware.streams.kept_stream import KeptStream
from gateway.middleware.streams.resumable import HEADER
from gateway.serving.records import Outcome, RequestRecord
from tests.backends import on_each_backend  # noqa: F401 - a fixture
from tests.gateway.apis.openai.chat.test_endpoint import engine_of
from tests.gateway.apis.requests import GENERATIONS
from tests.gateway.application import apis, gateway_of
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import FakeEngine, say_a, wait_in_queue

pytestmark = pytest.mark.anyio

NAME = "one"
MESSAGES = [{"role": "user", "content": "Hi"}]
OPENAI, ANTHROPIC, LINE = b'data: {"error":', b'event: error\ndata: {"type":"error"', b'{"error":'
FAILURES = {
    "/v1/chat/completions": OPENAI,
    "/v1/completions": OPENAI,
    "/v1/responses": b'event: error\ndata: {"type":"error","sequence_number":',
    "/v1/messages": ANTHROPIC,
    "/completion": OPENAI,
    "/generate": b'data: {"success":false,"error":',
    "/api/chat": LINE,
    "/api/generate": LINE,
}
"""Beginning of the failure event of each path."""
each_api = pytest.mark.parametrize("path", FAILURES)


@asynccontextmanager
async def serving(engine: FakeEngine, **changes: Any) -> AsyncIterator[Gateway]:
    gateway = gateway_of(engine, **changes)
    async with gateway.streams.open():
        yield gateway


def asking(gateway: Gateway, path: str, **fields: Any) -> AsgiCall:
    body = GENERATIONS[f"{path} stream"] | fields
    return AsgiCall(gateway.app, path, orjson.dumps(body), headers={HEADER: NAME})


async def read(gateway: Gateway) -> AsgiCall:
    return await AsgiCall(gateway.app, "/v1/stream", method="GET", query=f"conv_id={NAME}").run()


def kept(gateway: Gateway) -> KeptStream:
    stream = gateway.streams.find(NO_CREDENTIALS, NAME)
    assert stream is not None
    return stream


def pass_deadline(gateway: Gateway) -> None:
    """Let the time of the kept stream end now."""
    closing = kept(gateway).closing
    assert closing.work is not None
    closing.deadline = closing.work.deadline = anyio.current_time()


async def leave_alone(gateway: Gateway, path: str = "/v1/completions") -> None:
    """Begin a stream, and leave it after its first text."""
    async with asking(gateway, path).running() as call:
        await call.sent(1)
        call.hang_up()


def without_failure(path: str, content: bytes) -> bytes:
    """Return a stream without the event of its failure, which is the last one, and the only one."""
    rest, begin, failure = content.partition(FAILURES[path])
    assert begin, content
    end = b"\n" if begin == LINE else b"\n\n"
    assert failure.endswith(end)
    assert end not in failure.removesuffix(end)
    return rest


@each_api
async def test_the_deadline_of_a_stream_with_its_client_is_one_event(path: str) -> None:
    async with serving(engine_of(say_a)) as gateway:
        async with asking(gateway, path).running() as call:
            await call.sent(1)
            pass_deadline(gateway)
        again = await read(gateway)
    assert again.content == call.content
    without_failure(path, call.content)


@each_api
async def test_the_deadline_of_a_stream_without_its_client_is_one_event(path: str) -> None:
    engine = engine_of(say_a)
    async with serving(engine) as gateway:
        await leave_alone(gateway, path)
        pass_deadline(gateway)
        without_failure(path, (await read(gateway)).content)
    assert engine.generations[0].left == "the request's deadline passed"


@each_api
async def test_a_stop_of_the_server_is_one_event(path: str) -> None:
    async with serving(engine_of(say_a)) as gateway, asking(gateway, path).running() as call:
        await call.sent(1)
        call.shut_down()
    without_failure(path, call.content)


@each_api
async def test_a_stream_that_is_replaced_ends_in_one_event_for_its_readers(path: str) -> None:
    async with serving(engine_of(say_a)) as gateway, anyio.create_task_group() as tasks:
        first = asking(gateway, path)
        tasks.start_soon(first.run)
        await first.sent(1)
        second = asking(gateway, path)
        tasks.start_soon(second.run)
        await second.sent(1)
        await anyio.wait_all_tasks_blocked()
        gateway.streams.drop(NO_CREDENTIALS, NAME)
    for call in (first, second):
        assert b"began another one with its name" in call.content
        without_failure(path, call.content)


async def test_a_stream_that_is_ended_before_its_first_text_is_a_status() -> None:
    async with serving(engine_of(wait_in_queue)) as gateway, asking(gateway, "/v1/completions").running() as call:
        await anyio.wait_all_tasks_blocked()
        gateway.streams.drop(NO_CREDENTIALS, NAME)
    error = call.json["error"]
    assert (call.status, error["code"], error["type"]) == (400, "stream_ended", "invalid_request_error")
    assert call.header("x-should-retry") == "false"


@each_api
async def test_a_kept_stream_has_the_media_type_of_its_api(path: str) -> None:
    async with serving(engine_of()) as gateway:
        plain = AsgiCall(gateway.app, path, asking(gateway, path).body)
        types = {(await call.run()).header("content-type") for call in (plain, asking(gateway, path))}
        types.add((await read(gateway)).header("content-type"))
    assert len(types) == 1


@pytest.mark.parametrize("path", ["/v1/messages", "/api/generate"])
async def test_a_reader_that_is_too_slow_gets_one_event(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_stream, "MOST_BYTES", 10)
    async with serving(engine_of(say_a)) as gateway, anyio.create_task_group() as tasks:
        await leave_alone(gateway, path)
        stream = kept(gateway)
        call = AsgiCall(gateway.app, "/v1/stream", method="GET", query=f"conv_id={NAME}&from={stream.size - 1}")
        tasks.start_soon(call.run)
        await call.sent(1)
        await stream.send({"type": "http.response.body", "body": b"x" * 20})
    assert b"Stream offset lost" in call.content[1:]
    without_failure(path, call.content)


async def test_the_cause_of_an_end_is_not_that_the_client_left_before() -> None:
    records: list[RequestRecord] = []
    async with serving(engine_of(say_a)) as gateway:
        gateway.observers.append(records.append)
        await leave_alone(gateway)
        pass_deadline(gateway)
        await read(gateway)
        assert (records[-1].outcome, records[-1].cause) == (Outcome.CANCELLED, Cause.DEADLINE)
        await leave_alone(gateway)
        gateway.streams.drop(NO_CREDENTIALS, NAME)
        await anyio.wait_all_tasks_blocked()
        assert (records[-1].outcome, records[-1].cause) == (Outcome.CANCELLED, Cause.CLIENT_CANCELLED)


@pytest.mark.parametrize("path", ["/v1/completions", "/api/generate"])
async def test_a_request_that_does_not_stream_is_not_kept(path: str) -> None:
    records: list[RequestRecord] = []
    engine = engine_of(say_a)
    async with serving(engine, background_limit=1, resumable_streams=1) as gateway:
        await leave_alone(gateway)
        stream = kept(gateway)
        engine.script = lambda generation: generation.put(Finished(0, "b", FinishReason.STOP, 1, 0))
        assert (await asking(gateway, path, stream=False).run()).status == 200
        engine.script = lambda _generation: None
        gateway.observers.append(records.append)
        async with asking(gateway, path, stream=False).running() as call:
            await anyio.wait_all_tasks_blocked()
            call.hang_up()
        assert (records[-1].outcome, records[-1].cause) == (Outcome.CANCELLED, Cause.CLIENT_LEFT)
        assert kept(gateway) is stream


def test_each_endpoint_that_can_stream_says_which_requests_do() -> None:
    for endpoint in (endpoint for api in apis() for endpoint in api.endpoints):
        assert (endpoint.events is None) is (endpoint.streams is never_streams), endpoint.path
