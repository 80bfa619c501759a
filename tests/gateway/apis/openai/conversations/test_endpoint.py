"""`/v1/conversations`: create, get, update, delete, and the items."""

from typing import Any

import orjson
import pytest
from starlette.types import ASGIApp

from tests.gateway.apis.openai.responses.asking import answering, chatting
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall

pytestmark = pytest.mark.anyio

PATH = "/v1/conversations"
ALICE = {"authorization": "Bearer alice"}


@pytest.fixture
def app() -> ASGIApp:
    return app_of(chatting(answering("Hello")))


async def send(
    app: ASGIApp, method: str, path: str = "", body: object = None, query: str = "", **headers: str
) -> AsgiCall:
    data = b"" if body is None else orjson.dumps(body)
    return await AsgiCall(app, PATH + path, data, method=method, headers=ALICE | headers, query=query).run()


async def create(app: ASGIApp, **fields: Any) -> str:
    """Create a conversation, and return its path below `PATH`."""
    reply = await send(app, "POST", body=fields)
    assert reply.status == 200, reply.content
    return f"/{reply.json['id']}"


def said(name: str) -> dict[str, Any]:
    return {"role": "user", "content": name, "id": f"msg_{name}"}


async def listed(app: ASGIApp, path: str, query: str = "order=asc") -> list[str]:
    return [item["id"] for item in (await send(app, "GET", f"{path}/items", query=query)).json["data"]]


@pytest.mark.parametrize("body", [None, {}, {"metadata": None, "items": None}, {"items": []}])
async def test_a_conversation_may_be_empty(app: ASGIApp, body: object) -> None:
    conversation = (await send(app, "POST", body=body)).json
    assert conversation["id"].startswith("conv_")
    assert isinstance(conversation["created_at"], int)
    assert (conversation["object"], conversation["metadata"]) == ("conversation", {})
    listed = (await send(app, "GET", f"/{conversation['id']}/items")).json
    assert listed == {"object": "list", "data": [], "has_more": False, "first_id": "", "last_id": ""}


async def test_metadata_is_replaced(app: ASGIApp) -> None:
    path = await create(app, metadata={"a": "1", "b": "2"})
    updated = await send(app, "POST", path, {"metadata": {"c": "3"}})
    assert updated.json["metadata"] == {"c": "3"}
    assert (await send(app, "GET", path)).json == updated.json
    assert (await send(app, "POST", path, {"metadata": None})).json["metadata"] == {}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "missing_required_parameter"),
        ({"metadata": {"a": 1}}, "invalid_type"),
        ({"metadata": {"k" * 65: ""}}, "invalid_value"),
        ({"metadata": {"k": "v" * 513}}, "invalid_value"),
        ({"metadata": {str(number): "" for number in range(17)}}, "invalid_value"),
    ],
)
async def test_invalid_metadata_is_refused(app: ASGIApp, body: object, code: str) -> None:
    reply = await send(app, "POST", await create(app), body)
    assert (reply.status, reply.json["error"]["param"], reply.json["error"]["code"]) == (400, "metadata", code)


async def test_items_of_every_kind_are_kept_as_they_are_answered(app: ASGIApp) -> None:
    kinds: list[Any] = [
        said("a"),
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"role": "assistant", "content": "b"},
    ]
    path = await create(app, items=kinds[:1])
    added = await send(app, "POST", f"{path}/items", {"items": kinds[1:]}, query="include=reasoning.encrypted_content")
    whole = (await send(app, "GET", f"{path}/items", query="order=asc&include[]=file_search_call.results")).json
    assert added.json["data"] == whole["data"][1:]
    assert (added.json["first_id"], added.json["last_id"]) == (whole["data"][1]["id"], whole["data"][4]["id"])
    assert [item["type"] for item in whole["data"]] == [kind.get("type", "message") for kind in kinds]
    for item in whole["data"]:
        assert (await send(app, "GET", f"{path}/items/{item['id']}")).json == item


async def test_pages_have_openais_parameters(app: ASGIApp) -> None:
    path = await create(app, items=[said(name) for name in "abc"])
    assert await listed(app, path, "") == ["msg_c", "msg_b", "msg_a"]
    assert await listed(app, path, "order=asc&after=msg_a&limit=1") == ["msg_b"]
    page = (await send(app, "GET", f"{path}/items", query="limit=2")).json
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("msg_c", "msg_b", True)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "order=up", "after=msg_x", "include=x", "include[]=x"])
async def test_an_invalid_page_is_refused(app: ASGIApp, query: str) -> None:
    reply = await send(app, "GET", f"{await create(app)}/items", query=query)
    assert (reply.status, reply.json["error"]["param"]) == (400, query.partition("=")[0].removesuffix("[]"))


async def test_a_removed_item_is_gone(app: ASGIApp) -> None:
    path = await create(app, items=[said(name) for name in "abc"])
    conversation = (await send(app, "GET", path)).json
    assert (await send(app, "DELETE", f"{path}/items/msg_b")).json == conversation
    assert await listed(app, path) == ["msg_a", "msg_c"]
    for method in ("GET", "DELETE"):
        reply = await send(app, method, f"{path}/items/msg_b")
        assert (reply.status, reply.json["error"]["code"]) == (404, "item_not_found")


async def test_a_deleted_conversation_is_gone(app: ASGIApp) -> None:
    path = await create(app, items=[said("a")])
    deleted = (await send(app, "DELETE", path)).json
    assert deleted == {"id": path[1:], "object": "conversation.deleted", "deleted": True}
    for method in ("GET", "DELETE"):
        assert (await send(app, method, path)).status == 404


WRONG: list[tuple[object, str]] = [
    ({}, "items"),
    ({"items": "a"}, "items"),
    ({"items": [said(str(number)) for number in range(21)]}, "items"),
    ({"items": [said("a"), {"role": "bird", "content": ""}]}, "items[1].role"),
    ({"items": [{"type": "item_reference", "id": "msg_x"}]}, "items[0].id"),
    ({"items": [said("a"), said("a")]}, "items"),
    ({"items": [said("known")]}, "items"),
]


@pytest.mark.parametrize(("body", "param"), WRONG)
async def test_invalid_items_are_refused_and_none_is_added(app: ASGIApp, body: object, param: str) -> None:
    path = await create(app, items=[said("known")])
    reply = await send(app, "POST", f"{path}/items", body)
    assert (reply.status, reply.json["error"]["param"]) == (400, param)
    assert await listed(app, path) == ["msg_known"]


async def test_items_may_refer_to_those_of_responses(app: ASGIApp) -> None:
    response = await AsgiCall(app, "/v1/responses", b'{"input": "Hi"}', headers=ALICE).run()
    (output,) = response.json["output"]
    path = await create(app, items=[{"type": "item_reference", "id": output["id"]}])
    assert (await send(app, "GET", f"{path}/items")).json["data"] == [output]


REQUESTS: list[tuple[str, str, object]] = [
    ("GET", "", None),
    ("POST", "", {"metadata": {}}),
    ("DELETE", "", None),
    ("POST", "/items", {"items": []}),
    ("GET", "/items", None),
    ("GET", "/items/msg_a", None),
    ("DELETE", "/items/msg_a", None),
]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
async def test_a_conversation_of_others_looks_unknown(app: ASGIApp, method: str, path: str, body: object) -> None:
    mine = await create(app, items=[said("a")])
    theirs = await send(app, method, mine + path, body, authorization="Bearer mallory")
    unknown = await send(app, method, f"/conv_x{path}", body, authorization="Bearer mallory")
    assert theirs.status == unknown.status == 404
    assert theirs.content == unknown.content.replace(b"conv_x", mine[1:].encode())
    assert await listed(app, mine) == ["msg_a"]


async def test_referenced_items_that_are_too_large_together_name_the_field() -> None:
    app = app_of(chatting(answering("Hello")), body_limit=300)
    for name in "ab":
        asked = {"input": [{"role": "user", "content": "x" * 150, "id": f"msg_{name}"}]}
        reply = await AsgiCall(app, "/v1/responses", orjson.dumps(asked), headers=ALICE).run()
        assert reply.status == 200, reply.content
    references = [{"type": "item_reference", "id": f"msg_{name}"} for name in "ab"]
    for body, path in (({"items": references}, PATH), ({"input": references}, "/v1/responses")):
        reply = await AsgiCall(app, path, orjson.dumps(body), headers=ALICE).run()
        assert (reply.status, reply.json["error"]["param"]) == (400, *body)
