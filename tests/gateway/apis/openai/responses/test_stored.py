"""`/v1/responses/{id}`: get, list, delete; and background responses, which only `cancel` ends early."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.types import ASGIApp
from typing_extensions import override

from engine import Busy, EngineFault, Finished, FinishReason
from tests.gateway.apis.openai.responses.asking import BACKGROUND, PATH, answering, chatting, running, until
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine, say_nothing, wait_in_queue

pytestmark = pytest.mark.anyio


async def delete(app: ASGIApp, path: str) -> AsgiCall:
    return await AsgiCall(app, path, method="DELETE").run()


async def status_of(app: ASGIApp, response_id: str) -> str:
    status: str = (await get(app, f"{PATH}/{response_id}")).json["status"]
    return status


@pytest.mark.parametrize("store", [None, True])
async def test_a_stored_response_is_the_one_that_was_answered(store: bool | None) -> None:
    app = app_of(chatting(answering("Hello")))
    answer = (await post(app, PATH, {"input": "Hi", "store": store})).json
    assert (await get(app, f"{PATH}/{answer['id']}")).json == answer


async def test_a_response_with_store_false_is_not_stored() -> None:
    app = app_of(chatting(answering("Hello")))
    answer = (await post(app, PATH, {"input": "Hi", "store": False})).json
    missing = await get(app, f"{PATH}/{answer['id']}")
    assert (missing.status, missing.json["error"]["code"]) == (404, "response_not_found")
    assert answer["store"] is False


async def test_a_deleted_response_is_gone() -> None:
    app = app_of(chatting(answering("Hello")))
    path = f"{PATH}/{(await post(app, PATH, {'input': 'Hi'})).json['id']}"
    deleted = await delete(app, path)
    assert deleted.json == {"id": path.rpartition("/")[2], "object": "response", "deleted": True}
    for again in (await get(app, path), await delete(app, path), await get(app, f"{path}/input_items")):
        assert again.status == 404


async def test_only_the_latest_responses_are_stored() -> None:
    app = app_of(chatting(answering("Hello")), stored_responses=2)
    ids = [(await post(app, PATH, {"input": "Hi"})).json["id"] for _ in range(3)]
    assert [(await get(app, f"{PATH}/{name}")).status for name in ids] == [404, 200, 200]


async def test_unknown_fields_of_an_item_are_named_and_not_stored() -> None:
    app = app_of(chatting(answering("Hello")))
    said = {"role": "user", "content": [{"type": "input_text", "text": "Hi", "y": 1}], "id": "msg_a", "x": 1}
    reply = await post(app, PATH, {"input": [said]})
    assert reply.header("x-llama-gateway-ignored") == "input.x, input.content.y"
    listed = (await get(app, f"{PATH}/{reply.json['id']}/input_items")).json
    content = [{"type": "input_text", "text": "Hi"}]
    item = {"id": "msg_a", "type": "message", "role": "user", "status": "completed", "content": content}
    assert listed["data"] == [item]


async def test_the_input_items_are_listed() -> None:
    app = app_of(chatting(answering("Hello")))
    said = [{"role": "user", "content": text, "id": f"msg_{text}"} for text in "abc"]
    path = f"{PATH}/{(await post(app, PATH, {'input': said})).json['id']}/input_items"

    async def page(query: str = "") -> tuple[list[str], bool]:
        listed = (await AsgiCall(app, path, method="GET", query=query).run()).json
        ids = [item["id"] for item in listed["data"]]
        assert (listed["object"], listed["first_id"], listed["last_id"]) == ("list", ids[0], ids[-1])
        return ids, listed["has_more"]

    assert await page() == (["msg_c", "msg_b", "msg_a"], False)
    assert await page("order=asc&limit=2") == (["msg_a", "msg_b"], True)
    assert await page("order=asc&after=msg_b") == (["msg_c"], False)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        *((f"/input_items?{page}", page.partition("=")[0]) for page in ("limit=0", "limit=101", "limit=x", "order=up")),
        ("/input_items?after=other", "after"),
        ("?stream=true", "stream"),
        ("?starting_after=3", "starting_after"),
        ("?stream=true&starting_after=3", "stream"),
        ("?include=foo", "include"),
        ("?include[]=foo", "include"),
        ("?include=message.output_text.logprobs&stream=false", None),
    ],
)
async def test_a_query_that_cannot_be_honoured_is_refused_by_name(query: str, param: str | None) -> None:
    app = app_of(chatting(answering("Hello")))
    path, _, query = f"{PATH}/{(await post(app, PATH, {'input': 'Hi'})).json['id']}{query}".partition("?")
    reply = await AsgiCall(app, path, method="GET", query=query).run()
    refused = reply.json["error"]["param"] if reply.status == 400 else None
    assert (reply.status, refused) == (200 if param is None else 400, param)


async def test_a_foreground_response_cannot_be_cancelled() -> None:
    app = app_of(chatting(answering("Hello")))
    path = f"{PATH}/{(await post(app, PATH, {'input': 'Hi'})).json['id']}"
    reply = await post(app, f"{path}/cancel", b"")
    assert (reply.status, reply.json["error"]["code"]) == (400, "not_in_background")
    assert (await post(app, f"{PATH}/resp_x/cancel", b"")).status == 404


async def test_a_background_response_goes_through_its_states() -> None:
    engine = chatting(wait_in_queue)
    async with running(engine) as app:
        created = (await post(app, PATH, BACKGROUND)).json
        assert (created["status"], created["output"], created["background"]) == ("queued", [], True)
        assert await status_of(app, created["id"]) == "queued"
        engine.generations[0].start()
        await until(app, created["id"], "in_progress")
        engine.generations[0].put(Finished(0, "Hello", FinishReason.STOP, 1, 0))
        done = await until(app, created["id"], "completed")
    assert done["output"][0]["content"][0]["text"] == "Hello"
    assert done["usage"]["output_tokens"] == 1
    assert engine.generations[0].left is None


async def test_a_background_response_cannot_be_continued_before_its_end() -> None:
    engine = chatting(say_nothing)
    async with running(engine) as app:
        created = (await post(app, PATH, BACKGROUND)).json
        body = {"input": "Hi", "previous_response_id": created["id"]}
        error = (await post(app, PATH, body)).json["error"]
        assert (error["code"], error["param"]) == ("previous_response_not_completed", "previous_response_id")
        assert error["message"] == "The previous response has not ended yet."
        engine.generations[0].put(Finished(0, "Hello", FinishReason.STOP, 1, 0))
        await until(app, created["id"], "completed")
        engine.script = answering("Bye")
        assert (await post(app, PATH, body)).json["status"] == "completed"


async def test_a_client_that_leaves_does_not_end_a_background_response() -> None:
    engine = chatting(say_nothing)
    async with running(engine) as app:
        call = AsgiCall(app, PATH, b'{"input":"Hi","background":true}')
        await call.run()
        call.hang_up()
        await anyio.wait_all_tasks_blocked()
        assert engine.generations[0].left is None
        assert await status_of(app, call.json["id"]) == "in_progress"


@pytest.mark.parametrize("script", [wait_in_queue, say_nothing])
async def test_cancelling_a_background_response_frees_it(script: Any) -> None:
    engine = chatting(script)
    async with running(engine) as app:
        response_id = (await post(app, PATH, BACKGROUND)).json["id"]
        await anyio.wait_all_tasks_blocked()
        cancelled = await post(app, f"{PATH}/{response_id}/cancel", b"")
        assert engine.generations[0].left == "the response was cancelled"
        assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
        assert (await get(app, f"{PATH}/{response_id}")).json == cancelled.json
        assert (await post(app, f"{PATH}/{response_id}/cancel", b"")).json == cancelled.json


class SlowToAccept(FakeEngine):
    """An engine that never accepts or refuses a request. `reasons` has the reason of each cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.model = chatting(say_nothing).model
        self.asked = anyio.Event()
        self.reasons: list[str] = []

    @override
    async def accept(self, why: Callable[[], str]) -> None:
        self.asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.reasons.append(why())


async def test_a_client_that_leaves_before_its_background_response_is_accepted() -> None:
    engine = SlowToAccept()
    async with running(engine) as app:
        async with AsgiCall(app, PATH, b'{"input":"Hi","background":true}').running() as call:
            await engine.asked.wait()
            call.hang_up()
        assert engine.reasons == ["client closed the connection"]
    assert call.start is None


async def test_cancelling_an_ended_response_has_no_effect() -> None:
    async with running(chatting(answering("Hello"))) as app:
        response_id = (await post(app, PATH, BACKGROUND)).json["id"]
        done = await until(app, response_id, "completed")
        assert (await post(app, f"{PATH}/{response_id}/cancel", b"")).json == done


async def test_deleting_a_background_response_frees_it() -> None:
    engine = chatting(say_nothing)
    async with running(engine) as app:
        response_id = (await post(app, PATH, BACKGROUND)).json["id"]
        assert (await get(app, f"{PATH}/{response_id}/input_items")).json["data"][0]["role"] == "user"
        assert (await delete(app, f"{PATH}/{response_id}")).status == 200
        assert engine.generations[0].left == "the response was cancelled"
        assert (await get(app, f"{PATH}/{response_id}")).status == 404


async def test_of_a_deleted_background_response_no_item_is_left() -> None:
    async with running(chatting(answering("Hello"))) as app:
        assert (await post(app, PATH, {"input": "Hi"})).status == 200  # stays
        made = (await post(app, PATH, BACKGROUND)).json
        (item,) = (await until(app, made["id"], "completed"))["output"]
        assert (await delete(app, f"{PATH}/{made['id']}")).status == 200
        referring = await post(app, PATH, {"input": [{"type": "item_reference", "id": item["id"]}]})
        assert (referring.status, referring.json["error"]["param"]) == (400, "input[0].id")
        following = await post(app, PATH, {"input": "Hi", "previous_response_id": made["id"]})
        assert (following.status, following.json["error"]["code"]) == (400, "previous_response_not_found")


async def test_a_failed_background_response_has_its_error() -> None:
    engine = chatting(say_nothing)
    async with running(engine) as app:
        response_id = (await post(app, PATH, BACKGROUND)).json["id"]
        engine.generations[0].fail(EngineFault("Dead.", code="engine_died"))
        failed = await until(app, response_id, "failed")
    assert failed["error"] == {"code": "server_error", "message": "Dead."}


async def test_a_refused_request_does_not_become_a_background_response() -> None:
    engine = chatting(say_nothing)
    engine.refusal = Busy("Full.", code="queue_full")
    async with running(engine) as app:
        reply = await post(app, PATH, BACKGROUND)
        assert (reply.status, reply.json["error"]["code"]) == (429, "queue_full")
        engine.refusal = None
        assert (await post(app, PATH, BACKGROUND)).status == 200


async def test_the_servers_end_cancels_background_responses() -> None:
    engine = chatting(say_nothing)
    async with running(engine) as app:
        for _ in range(3):
            await post(app, PATH, BACKGROUND)
    assert [generation.left for generation in engine.generations] == ["the server is shutting down"] * 3
    reply = await post(app, PATH, BACKGROUND)
    assert (reply.status, reply.json["error"]["code"]) == (503, "shutting_down")
