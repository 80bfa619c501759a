"""`conversation` of `POST /v1/responses`: what a response reads of it, and when its items are added."""

from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import ASGIApp, Message
from typing_extensions import override

from engine import Busy, EngineFault, Finished, FinishReason
from tests.gateway.apis.openai.responses.asking import PATH, answering, chatting, events_of, running
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine, Script, say_a, say_nothing, wait_in_queue

pytestmark = pytest.mark.anyio

CONVERSATIONS = "/v1/conversations"
FIRST = {"role": "user", "content": "Hi", "id": "msg_hi"}
SECOND = {"role": "user", "content": "Bye", "id": "msg_bye"}
MODES: list[dict[str, Any]] = [{}, {"stream": True}, {"background": True}]


async def conversation_in(app: ASGIApp) -> str:
    """Create a conversation with one item, and return its id."""
    created: str = (await post(app, CONVERSATIONS, {"items": [FIRST]})).json["id"]
    return created


async def ids(app: ASGIApp, conversation: str) -> list[str]:
    reply = await AsgiCall(app, f"{CONVERSATIONS}/{conversation}/items", method="GET", query="order=asc").run()
    return [item["id"] for item in reply.json["data"]]


def response_of(reply: AsgiCall) -> dict[str, Any]:
    """Return the last state of a response in an answer or a stream."""
    streamed = (reply.header("content-type") or "").startswith("text/event-stream")
    found: dict[str, Any] = events_of(reply.content)[-1]["response"] if streamed else reply.json
    return found


async def ended(app: ASGIApp, response: dict[str, Any]) -> dict[str, Any]:
    """Return a response after its end. Only one in the background has not ended before."""
    while response["status"] in {"queued", "in_progress"}:
        await anyio.lowlevel.checkpoint()
        response = (await get(app, f"{PATH}/{response['id']}")).json
    return response


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by_id", [True, False])
async def test_a_response_continues_its_conversation(mode: dict[str, Any], by_id: bool) -> None:
    engine = chatting(answering("Hello"))
    async with running(engine) as app:
        conversation = await conversation_in(app)
        named: object = conversation if by_id else {"id": conversation}
        reply = await post(app, PATH, {"input": [SECOND], "conversation": named, **mode})
        response = await ended(app, response_of(reply))
        assert response["conversation"] == {"id": conversation}
        assert await ids(app, conversation) == ["msg_hi", "msg_bye", response["output"][0]["id"]]
        again = await post(app, PATH, {"input": "More", "conversation": conversation})
        assert again.status == 200
    (prompt,) = engine.generations[-1].request.prompts
    assert prompt == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
        "<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "conversation" not in (await post(app, PATH, {"input": "Hi"})).json


async def test_an_incomplete_response_is_added() -> None:
    app = app_of(chatting(answering("Hel", FinishReason.LENGTH)))
    conversation = await conversation_in(app)
    response = (await post(app, PATH, {"conversation": conversation})).json
    assert response["status"] == "incomplete"
    assert await ids(app, conversation) == ["msg_hi", response["output"][0]["id"]]


async def test_the_items_are_there_before_the_last_event() -> None:
    """A client that has read `response.completed` may send its next request at once."""
    engine = chatting(say_a)
    app = app_of(engine)
    conversation = await conversation_in(app)
    async with AsgiCall(app, PATH, orjson.dumps({"conversation": conversation, "stream": True})).running() as call:
        await call.sent(1)
        assert await ids(app, conversation) == ["msg_hi"]
        engine.generations[0].put(Finished(0, "b", FinishReason.STOP, 2, 0))
        await call.sent(2)
        assert len(await ids(app, conversation)) == 2
        engine.script = answering("Hello")
        assert (await post(app, PATH, {"conversation": conversation})).status == 200


@pytest.mark.parametrize("mode", MODES)
async def test_a_second_response_is_refused_until_the_first_has_ended(mode: dict[str, Any]) -> None:
    engine = chatting(say_a if mode.get("stream") else say_nothing)
    async with running(engine) as app, anyio.create_task_group() as tasks:
        conversation = await conversation_in(app)
        fields = {"input": [SECOND], "conversation": conversation}
        tasks.start_soon(AsgiCall(app, PATH, orjson.dumps({**fields, **mode})).run)
        await engine.first()
        for path, body in ((PATH, fields), (f"{CONVERSATIONS}/{conversation}/items", {"items": []})):
            locked = await post(app, path, body)
            assert (locked.status, locked.json["error"]["code"]) == (400, "conversation_locked")
            assert locked.json["error"]["param"] == "conversation"
        reading = await post(app, f"{PATH}/input_tokens", fields)
        assert reading.status == 200
        assert len(engine.generations) == 1
        engine.generations[0].put(Finished(0, "b", FinishReason.STOP, 2, 0))


@pytest.mark.parametrize("script", [wait_in_queue, say_nothing, say_a])
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_added_when_the_client_leaves(script: Script, stream: bool) -> None:
    engine = chatting(script)
    app = app_of(engine)
    conversation = await conversation_in(app)
    fields = {"input": [SECOND], "conversation": conversation, "stream": stream}
    async with AsgiCall(app, PATH, orjson.dumps(fields)).running() as call:
        await engine.first()
        call.hang_up()
    assert engine.generations[0].left == "client closed the connection"
    await assert_unchanged(app, engine, conversation)


@pytest.mark.parametrize("script", [wait_in_queue, say_nothing, say_a])
async def test_nothing_is_added_when_the_response_is_cancelled(script: Script) -> None:
    engine = chatting(script)
    async with running(engine) as app:
        conversation = await conversation_in(app)
        response = (await post(app, PATH, {"conversation": conversation, "background": True})).json
        cancelled = await post(app, f"{PATH}/{response['id']}/cancel", b"")
        assert cancelled.json["status"] == "cancelled"
        await assert_unchanged(app, engine, conversation)


@pytest.mark.parametrize("mode", MODES)
async def test_nothing_is_added_when_the_response_fails(mode: dict[str, Any]) -> None:
    engine = chatting(lambda generation: generation.fail(EngineFault("Dead.", code="engine_died")))
    async with running(engine) as app:
        conversation = await conversation_in(app)
        reply = await post(app, PATH, {"conversation": conversation, **mode})
        if reply.status == 200:
            assert (await ended(app, response_of(reply)))["status"] == "failed"
        await assert_unchanged(app, engine, conversation)


async def test_a_stream_that_fails_is_not_added() -> None:
    engine = chatting(say_a)
    app = app_of(engine)
    conversation = await conversation_in(app)
    async with AsgiCall(app, PATH, orjson.dumps({"conversation": conversation, "stream": True})).running() as call:
        await call.sent(1)
        engine.generations[0].fail(EngineFault("Dead.", code="engine_died"))
    await assert_unchanged(app, engine, conversation)


class Impatient(AsgiCall):
    """A client that sends its request again as soon as it has read of the failure."""

    engine: FakeEngine
    again: AsgiCall | None = None

    @override
    async def _send(self, message: Message) -> None:
        await super()._send(message)
        if self.again is None and b"Dead." in message.get("body", b""):
            self.engine.refusal, self.engine.script = None, answering("Hello")
            self.again = await AsgiCall(self.app, self.path, self.body).run()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("refused", [False, True])
async def test_a_client_that_reads_of_a_failure_may_try_again_at_once(stream: bool, refused: bool) -> None:
    engine = chatting(say_a)
    app = app_of(engine)
    call = Impatient(app, PATH, orjson.dumps({"conversation": await conversation_in(app), "stream": stream}))
    call.engine, engine.refusal = engine, Busy("Dead.", code="queue_full") if refused else None
    async with call.running():
        if not refused:
            generation = await engine.first()
            if stream:
                await call.sent(1)
            generation.fail(EngineFault("Dead.", code="engine_died"))
    assert call.again is not None
    assert call.again.status == 200


@pytest.mark.parametrize("mode", MODES)
async def test_nothing_is_added_when_the_request_is_refused(mode: dict[str, Any]) -> None:
    engine = chatting(answering("Hello"))
    async with running(engine) as app:
        conversation = await conversation_in(app)
        engine.refusal = Busy("Full.", code="queue_full")
        reply = await post(app, PATH, {"conversation": conversation, **mode})
        assert reply.status == 429
        engine.refusal = None
        await assert_unchanged(app, engine, conversation)


async def assert_unchanged(app: ASGIApp, engine: FakeEngine, conversation: str) -> None:
    """Assert that the conversation has only its first item, and takes the next response."""
    assert await ids(app, conversation) == ["msg_hi"]
    engine.script = answering("Hello")
    assert (await post(app, PATH, {"conversation": conversation})).status == 200
    assert len(await ids(app, conversation)) == 2


async def test_a_response_that_is_not_stored_only_reads_the_conversation() -> None:
    engine = chatting(answering("Hello"))
    app = app_of(engine)
    conversation = await conversation_in(app)
    response = (await post(app, PATH, {"input": "x", "conversation": conversation, "store": False})).json
    assert response["conversation"] == {"id": conversation}
    assert str(engine.generations[0].request.prompts[0]).startswith("<|im_start|>user\nHi<|im_end|>")
    assert await ids(app, conversation) == ["msg_hi"]


async def test_a_conversation_deleted_meanwhile_stays_deleted() -> None:
    engine = chatting(say_nothing)
    async with running(engine) as app:
        conversation = await conversation_in(app)
        response = (await post(app, PATH, {"conversation": conversation, "background": True})).json
        path = f"{CONVERSATIONS}/{conversation}"
        assert (await AsgiCall(app, path, method="DELETE").run()).status == 200
        engine.generations[0].put(Finished(0, "b", FinishReason.STOP, 2, 0))
        assert (await ended(app, response))["status"] == "completed"
        assert (await get(app, path)).status == 404


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"conversation": "conv_x"}, 404, "conversation_not_found", None),
        ({"conversation": {}}, 400, "missing_required_parameter", "conversation.id"),
        ({"conversation": 5}, 400, "invalid_type", "conversation"),
        ({"previous_response_id": "resp_x"}, 400, "mutually_exclusive_parameters", "previous_response_id"),
        ({"input": [FIRST]}, 400, "duplicate_item", "input"),
        ({"input": [SECOND, SECOND]}, 400, "duplicate_item", "input"),
    ],
)
async def test_a_wrong_request_is_refused(fields: dict[str, Any], status: int, code: str, param: str | None) -> None:
    engine = chatting(answering("Hello"))
    app = app_of(engine)
    conversation = await conversation_in(app)
    reply = await post(app, PATH, {"input": "x", "conversation": conversation, **fields})
    assert (reply.status, reply.json["error"]["code"], reply.json["error"]["param"]) == (status, code, param)
    await assert_unchanged(app, engine, conversation)


async def test_an_unknown_field_of_the_reference_is_named() -> None:
    app = app_of(chatting(answering("Hello")))
    conversation = await conversation_in(app)
    reply = await post(app, PATH, {"conversation": {"id": conversation, "x": 1}})
    assert reply.header("x-llama-gateway-ignored") == "conversation.x"


async def test_an_empty_conversation_needs_an_input() -> None:
    app = app_of(chatting(answering("Hello")))
    conversation = (await post(app, CONVERSATIONS, {})).json["id"]
    reply = await post(app, PATH, {"conversation": conversation})
    assert (reply.status, reply.json["error"]["param"]) == (400, "input")
    assert (await post(app, PATH, {"input": "x", "conversation": conversation})).status == 200


async def test_the_conversation_of_others_cannot_be_continued() -> None:
    app = app_of(chatting(answering("Hello")))
    conversation = await conversation_in(app)
    for named in (conversation, "conv_x"):
        reply = await post(app, PATH, {"input": "x", "conversation": named}, authorization="Bearer mallory")
        assert (reply.status, reply.json["error"]["message"]) == (404, f"Conversation with id {named!r} not found.")
    assert await ids(app, conversation) == ["msg_hi"]
