"""The description: complete, valid, and true of the server."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
import schemathesis
from jsonschema_rs import Draft202012Validator, Registry, ValidationError, meta
from starlette.routing import Route

from gateway.apis.openai.responses.store.pages import Page
from gateway.apis.routing import Router
from gateway.openapi.document import describe, plain_path
from tests.gateway import description
from tests.gateway.application import apis, app_of
from tests.gateway.asgi import AsgiCall, get
from tests.gateway.fake_engine import FakeEngine

JSON = {"content-type": "application/json", "x-request-id": "x"}
EVENTS = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "x"}
ERROR = b'{"error":{"message":"m","type":"server_error","param":null,"code":null}}'
WRONG: dict[str, tuple[str, str, int, Mapping[str, str], bytes]] = {
    "status": ("POST", "/apply-template", 429, JSON, ERROR),
    "type": ("POST", "/tokenize", 200, EVENTS, b""),
    "body": ("POST", "/tokenize", 200, JSON, b'{"tokens":["a"],"count":1,"max_model_len":1}'),
    "another field": ("POST", "/tokenize", 200, JSON, b'{"tokens":[],"count":0,"max_model_len":1,"more":1}'),
    "error": ("POST", "/tokenize", 400, JSON, b'{"error":"m"}'),
    "no id": ("POST", "/tokenize", 400, {"content-type": "application/json"}, ERROR),
    "a header of other statuses": ("POST", "/tokenize", 400, {**JSON, "retry-after": "1"}, ERROR),
    "no envelope": ("POST", "/generate", 503, JSON, ERROR),
    "event": ("POST", "/v1/completions", 200, EVENTS, b"data: {}\n\n"),
    "a part of a text": ("POST", "/completion", 200, EVENTS, b'data: {"stop":false}\n\n'),
    "an end that others have": ("POST", "/generate", 200, EVENTS, b"data: [DONE]\n\n"),
}
UNKNOWN: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "a", "x": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a", "x": 1}]},
    "/tokenize": {"content": "a", "x": 1},
    "/v1/responses": {"input": "a", "tools": [{"type": "web_search"}]},
    "/v1/messages": {
        "model": "a",
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "a"}],
        "context_management": {"edits": [{"type": "compact_20260112"}]},
    },
}


def routes_of(app: Any) -> list[Route]:
    while not isinstance(app, Router):
        app = vars(app)["_app"]
    return app.routes


def test_the_described_routes_are_those_of_the_server() -> None:
    routed = [
        (plain_path(route.path), method.lower())
        for route in routes_of(app_of(FakeEngine()))
        for method in (route.methods or set()) - {"HEAD"}
    ]
    paths = description.document()["paths"]
    assert sorted(routed) == sorted((path, method) for path, methods in paths.items() for method in methods)


def test_the_document_is_valid_openapi() -> None:
    schemathesis.openapi.from_dict(description.document()).validate()
    identifiers = [endpoint.id for api in apis() for endpoint in api.endpoints]
    assert len(set(identifiers)) == len(identifiers)


def test_every_schema_is_valid_and_its_defaults_match_it() -> None:
    schemas = description.document()["components"]["schemas"]
    for schema in schemas.values():
        meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    for name, schema in schemas.items():
        for field, described in schema.get("properties", {}).items():
            if "default" in described:
                described_at = description.validator(("components", "schemas", name, "properties", field))
                described_at.validate(described["default"])


def test_schema_names_are_unique() -> None:
    assert not [name for name in description.document()["components"]["schemas"] if "__" in name]


def test_a_page_has_its_query_parameters() -> None:
    endpoint = next(endpoint for api in apis() for endpoint in api.endpoints if endpoint.id == "listInputItems")
    assert [parameter["name"] for parameter in endpoint.query] == list(Page.model_fields)


@pytest.mark.anyio
@pytest.mark.parametrize("path", description.document()["paths"])
async def test_a_405_lists_the_described_methods(path: str) -> None:
    reply = await AsgiCall(app_of(FakeEngine()), path.replace("{id}", "x"), method="TRACE").run()
    assert reply.status == 405
    methods = set((reply.header("allow") or "").lower().split(", ")) - {"head"}
    assert methods == description.document()["paths"][path].keys()


@pytest.mark.anyio
async def test_the_document_is_served() -> None:
    reply = await get(app_of(FakeEngine()), "/openapi.json")
    assert (reply.status, reply.header("content-type")) == (200, "application/json")
    assert reply.json == description.document()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_response_that_differs_from_the_description_is_detected(wrong: str) -> None:
    with pytest.raises((AssertionError, ValidationError, orjson.JSONDecodeError)):
        description.check(*WRONG[wrong])


@pytest.mark.anyio
@pytest.mark.parametrize("strict", [False, True])
async def test_the_description_allows_unknown_fields_as_the_server_does(strict: bool) -> None:
    served = (await get(app_of(FakeEngine(), strict_fields=strict), "/openapi.json")).json
    assert served == describe(apis(), strict=strict)
    registry = Registry([("urn:served", served)])
    for path, body in UNKNOWN.items():
        (media,) = served["paths"][path]["post"]["requestBody"]["content"]
        place = "/".join(part.replace("/", "~1") for part in ("paths", path, "post", "requestBody", "content", media))
        validator = Draft202012Validator({"$ref": f"urn:served#/{place}/schema"}, registry=registry)
        assert validator.is_valid(body) is not strict, path


@pytest.mark.anyio
async def test_the_document_is_made_at_the_first_request_and_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    def make(*_apis: object, strict: bool) -> dict[str, Any]:
        made.append(strict)
        return {}

    monkeypatch.setattr("gateway.openapi.endpoint.describe", make)
    app = app_of(FakeEngine(), strict_fields=True)
    assert made == []
    replies = [await AsgiCall(app, "/openapi.json", method="HEAD").run() for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 200]
    assert made == [True]
