"""The description: whole, valid, and true of what it describes."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
import schemathesis
from jsonschema import Draft202012Validator, ValidationError
from starlette.applications import Starlette
from starlette.routing import Route

from gateway.openapi.document import describe, document
from gateway.openapi.operations import OPERATIONS
from gateway.routes.responses_stored import Page
from tests.gateway import description
from tests.gateway.asgi import Call, app_of, get
from tests.gateway.fake_engine import FakeEngine

JSON = {"content-type": "application/json", "x-request-id": "x"}
EVENTS = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "x"}
ERROR = b'{"error":{"message":"m","type":"server_error","param":null,"code":null}}'
WRONG: dict[str, tuple[str, str, int, Mapping[str, str], bytes]] = {
    "status": ("POST", "/tokenize", 429, JSON, ERROR),
    "type": ("POST", "/tokenize", 200, EVENTS, b""),
    "body": ("POST", "/tokenize", 200, JSON, b'{"tokens":["a"]}'),
    "another field": ("POST", "/tokenize", 200, JSON, b'{"tokens":[],"more":1}'),
    "error": ("POST", "/tokenize", 400, JSON, b'{"error":"m"}'),
    "no id": ("POST", "/tokenize", 400, {"content-type": "application/json"}, ERROR),
    "a header of other statuses": ("POST", "/tokenize", 400, {**JSON, "retry-after": "1"}, ERROR),
    "no envelope": ("POST", "/generate", 503, JSON, ERROR),
    "event": ("POST", "/v1/completions", 200, EVENTS, b"data: {}\n\n"),
    "an end that others have": ("POST", "/generate", 200, EVENTS, b"data: [DONE]\n\n"),
}
DESCRIPTION = describe()
UNKNOWN: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "a", "x": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a", "x": 1}]},
    "/tokenize": {"content": "a", "x": 1},
}


def routes_of(app: Any) -> list[Route]:
    while not isinstance(app, Starlette):
        app = vars(app).get("_app") or vars(app)["_same_origin_app"]
    return [route for route in app.routes if isinstance(route, Route)]


def test_every_route_is_described_and_every_described_one_is_routed() -> None:
    routed = [
        (route.path.replace(":path}", "}"), method.lower())
        for route in routes_of(app_of(FakeEngine()))
        for method in (route.methods or set()) - {"HEAD"}
    ]
    assert sorted(routed) == sorted((operation.path, operation.method) for operation in OPERATIONS)


def test_it_is_what_openapi_asks_of_a_description() -> None:
    schemathesis.openapi.from_dict(DESCRIPTION).validate()
    identifiers = [operation.id for operation in OPERATIONS]
    assert len(set(identifiers)) == len(identifiers)


def test_every_schema_is_one_and_its_defaults_fit() -> None:
    schemas = DESCRIPTION["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    for name, schema in schemas.items():
        for field, described in schema.get("properties", {}).items():
            if "default" in described:
                described_at = description.validator(("components", "schemas", name, "properties", field))
                described_at.validate(described["default"])


def test_no_two_schemas_want_the_same_name() -> None:
    assert not [name for name in DESCRIPTION["components"]["schemas"] if "__" in name]


def test_the_parameters_of_a_page() -> None:
    (operation,) = (operation for operation in OPERATIONS if operation.path.endswith("input_items"))
    assert [parameter["name"] for parameter in operation.query] == list(Page.model_fields)


@pytest.mark.anyio
@pytest.mark.parametrize("path", DESCRIPTION["paths"])
async def test_another_method_is_told_those_that_are_described(path: str) -> None:
    reply = await Call(app_of(FakeEngine()), path.replace("{id}", "x"), method="TRACE").run()
    assert reply.status == 405
    methods = set((reply.header("allow") or "").lower().split(", ")) - {"head"}
    assert methods == DESCRIPTION["paths"][path].keys()


@pytest.mark.anyio
async def test_it_is_served() -> None:
    reply = await get(app_of(FakeEngine()), "/openapi.json")
    assert (reply.status, reply.header("content-type")) == (200, "application/json")
    assert reply.content == document()


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_as_described_is_noticed(wrong: str) -> None:
    with pytest.raises((AssertionError, ValidationError, orjson.JSONDecodeError)):
        description.check(*WRONG[wrong])


@pytest.mark.anyio
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("path", UNKNOWN)
async def test_unknown_fields_are_described_as_they_are_taken(path: str, strict: bool) -> None:
    served = (await get(app_of(FakeEngine(), strict_fields=strict), "/openapi.json")).json
    (schema,) = served["paths"][path]["post"]["requestBody"]["content"].values()
    validator = Draft202012Validator({**served, **schema["schema"]})
    assert validator.is_valid(UNKNOWN[path]) is not strict
    assert served == describe(strict=strict)
