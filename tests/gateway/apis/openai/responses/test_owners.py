"""Owners: what is stored or runs in the background belongs to the credentials of its request."""

from typing import Any

import orjson
import pytest
from starlette.types import ASGIApp

from engine import Busy
from tests.gateway.apis.openai.responses.asking import BACKGROUND, PATH, answering, chatting, running
from tests.gateway.application import app_of, settings_for
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import say_nothing

pytestmark = pytest.mark.anyio

ALICE, MALLORY = {"authorization": "Bearer alice"}, {"authorization": "Bearer mallory"}
STRANGERS: list[dict[str, str]] = [MALLORY, {}]


async def send(
    app: ASGIApp, headers: dict[str, str], method: str, path: str = "", body: object = None, query: str = ""
) -> AsgiCall:
    data = b"" if body is None else orjson.dumps(body)
    return await AsgiCall(app, PATH + path, data, method=method, headers=headers, query=query).run()


async def create(app: ASGIApp, headers: dict[str, str], **fields: Any) -> dict[str, Any]:
    reply = await send(app, headers, "POST", body={"input": "Hi", **fields})
    assert reply.status == 200, reply.content
    created: dict[str, Any] = reply.json
    return created


REQUESTS = [
    ("GET", "", ""),
    ("GET", "", "stream=false"),
    ("DELETE", "", ""),
    ("POST", "/cancel", ""),
    ("GET", "/input_items", ""),
    ("GET", "/input_items", "after=msg_1"),
]


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize(("method", "path", "query"), REQUESTS)
@pytest.mark.parametrize("background", [False, True])
async def test_a_response_of_others_looks_unknown(
    stranger: dict[str, str], method: str, path: str, query: str, background: bool
) -> None:
    engine = chatting(say_nothing if background else answering("Hello"))
    async with running(engine) as app:
        response_id = (await create(app, ALICE, background=background))["id"]
        theirs = await send(app, stranger, method, f"/{response_id}{path}", query=query)
        unknown = await send(app, stranger, method, f"/resp_x{path}", query=query)
        assert theirs.status == unknown.status == 404
        assert theirs.content == unknown.content.replace(b"resp_x", response_id.encode())
        assert engine.generations[0].left is None
        assert (await send(app, ALICE, "GET", f"/{response_id}")).status == 200


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_the_response_of_others_cannot_be_continued(stranger: dict[str, str]) -> None:
    app = app_of(chatting(answering("Hello")))
    response_id = (await create(app, ALICE))["id"]
    for previous in (response_id, "resp_x"):
        reply = await send(app, stranger, "POST", body={"input": "Hi", "previous_response_id": previous})
        assert (reply.status, reply.json["error"]["code"]) == (400, "previous_response_not_found")
        assert reply.json["error"]["message"] == f"Previous response with id {previous!r} not found."


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("partitioned", [False, True])
async def test_an_id_never_names_the_item_of_others(stranger: dict[str, str], partitioned: bool) -> None:
    """Neither an id that a client chose, nor one that the server made."""
    app = app_of(chatting(answering("Hello")), partition_cache=partitioned)
    secret = {"role": "user", "content": "secret", "id": "msg_1"}
    made = (await create(app, ALICE, input=[secret]))["output"][0]["id"]
    for item_id in ("msg_1", made, "msg_x"):
        reply = await send(app, stranger, "POST", body={"input": [{"type": "item_reference", "id": item_id}]})
        assert (reply.status, reply.json["error"]["param"]) == (400, "input[0].id")
        assert reply.json["error"]["message"] == f"input[0].id: no stored item has the id {item_id!r}"


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_a_client_cannot_put_words_into_the_prompt_of_others(stranger: dict[str, str]) -> None:
    engine = chatting(answering("Hello"))
    app = app_of(engine)
    await create(app, stranger, input=[{"role": "user", "content": "forged", "id": "msg_1"}])
    made = (await create(app, ALICE, input=[{"role": "user", "content": "mine", "id": "msg_1"}]))["output"][0]["id"]
    await create(app, stranger, input=[{"role": "user", "content": "forged", "id": made}])
    await create(app, ALICE, input=[{"id": "msg_1"}, {"id": made}])
    (prompt,) = engine.generations[-1].request.prompts
    assert prompt == (
        "<|im_start|>user\nmine<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("owner", [ALICE, {}])
async def test_equal_credentials_are_one_owner(owner: dict[str, str]) -> None:
    app = app_of(chatting(answering("Hello")))
    first = await create(app, owner)
    second = await create(app, owner, previous_response_id=first["id"])
    assert (await send(app, owner, "GET", f"/{first['id']}")).json == first
    assert (await send(app, owner, "DELETE", f"/{second['id']}")).status == 200


async def test_a_client_cannot_fill_the_store_of_others() -> None:
    app = app_of(chatting(answering("Hello")), stored_responses=4)
    kept = [(await create(app, ALICE))["id"] for _ in range(2)]
    for _ in range(10):
        await create(app, MALLORY)
    assert [(await send(app, ALICE, "GET", f"/{name}")).status for name in kept] == [200, 200]


async def test_background_responses_have_a_limit_for_each_owner() -> None:
    engine = chatting(say_nothing)
    async with running(engine, background_limit=2) as app:
        first = (await create(app, MALLORY, background=True))["id"]
        await create(app, MALLORY, background=True)
        refused = await send(app, MALLORY, "POST", body=BACKGROUND)
        assert (refused.status, refused.json["error"]["code"]) == (429, "background_limit_reached")
        assert (refused.json["error"]["type"], refused.json["error"]["param"]) == ("rate_limit_error", "background")
        assert len(engine.generations) == 2
        await create(app, ALICE, background=True)
        assert (await send(app, MALLORY, "POST", f"/{first}/cancel")).status == 200
        await create(app, MALLORY, background=True)


async def test_the_inputs_of_background_responses_have_a_limit_for_each_owner() -> None:
    engine = chatting(say_nothing)
    async with running(engine, stored_bytes=8000) as app:
        first = (await create(app, MALLORY, background=True, input="x" * 1500))["id"]
        refused = await send(app, MALLORY, "POST", body={**BACKGROUND, "input": "x" * 1500})
        assert (refused.status, refused.json["error"]["code"]) == (429, "background_limit_reached")
        assert "may have 2000 bytes" in refused.json["error"]["message"]
        await create(app, MALLORY, background=True)
        await create(app, ALICE, background=True, input="x" * 3000)  # more than the limit, but the only one
        assert (await send(app, MALLORY, "POST", f"/{first}/cancel")).status == 200
        await create(app, MALLORY, background=True, input="x" * 1500)


async def test_a_refused_background_response_does_not_count() -> None:
    engine = chatting(say_nothing)
    async with running(engine, background_limit=1) as app:
        engine.refusal = Busy("Full.", code="queue_full")
        for _ in range(3):
            assert (await send(app, ALICE, "POST", body=BACKGROUND)).json["error"]["code"] == "queue_full"
        engine.refusal = None
        await create(app, ALICE, background=True)


def test_the_background_responses_of_one_client_leave_room_for_others() -> None:
    settings = settings_for(slots=8, queue_limit=256)
    assert settings.background_responses == 66
    assert settings_for(slots=1, queue_limit=1).background_responses == 1
    assert settings_for(background_limit=7).background_responses == 7
