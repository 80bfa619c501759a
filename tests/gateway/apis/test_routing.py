"""Routes made from tables of endpoints, and the API of a path before it is routed."""

from types import NoneType

import pytest

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import Api, Call, Endpoint, no_body
from gateway.apis.routing import conventions_for, routes
from gateway.middleware.errors import Problem
from gateway.preparation.preparer import InlinePreparer
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import FakeEngine


async def answer(call: Call[None]) -> JsonReply[str]:
    return JsonReply(call.caller.request_id)


def endpoint(method: str, path: str) -> Endpoint[None, None, str]:
    return Endpoint(
        method=method, path=path, id=path, summary="", body=NoneType, prepare=no_body, handler=answer, answer=str
    )


def api(name: bytes, *endpoints: Endpoint[None, None, str]) -> Api:
    return Api(endpoints, lambda _problem: name, str)


APIS = (
    api(b"first", endpoint("GET", "/a"), endpoint("GET", "/a/{id}"), endpoint("DELETE", "/a/{id}")),
    api(b"second", endpoint("POST", "/b"), endpoint("GET", "/b/{id:path}"), endpoint("POST", "/d")),
)


def test_a_path_has_one_route_with_all_of_its_methods() -> None:
    made = {route.path: route.methods for route in routes(APIS, InlinePreparer())}
    assert made == {
        "/a": {"GET", "HEAD"},
        "/a/{id}": {"GET", "HEAD", "DELETE"},
        "/b": {"POST"},
        "/b/{id:path}": {"GET", "HEAD"},
        "/d": {"POST"},
    }


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/chat/completions/"), ("GET", "/v1/responses/resp_1/"), ("GET", "/api/tags/")],
)
async def test_a_path_with_a_slash_at_its_end_is_another_path(method: str, path: str) -> None:
    """A redirect would lead to any host that the request names."""
    reply = await AsgiCall(app_of(FakeEngine()), path, method=method, headers={"host": "other.example"}).run()
    assert (reply.status, reply.header("location")) == (404, None)


def test_a_path_has_its_apis_shape_of_errors_whatever_the_method() -> None:
    conventions = conventions_for(APIS)
    problem = Problem(status=404, message="m")
    shapes = {
        path: conventions(path).encode_error(problem)
        for path in ("/a", "/a/x", "/b", "/b/x/y", "/a/x/y", "/", "/c", "/d/x/y")
    }
    assert shapes == {
        "/a": b"first",
        "/a/x": b"first",
        "/b": b"second",
        "/b/x/y": b"second",
        "/a/x/y": b"first",
        "/": b"first",
        "/c": b"first",
        "/d/x/y": b"second",
    }


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/files", 404, "not_found"),
        ("POST", "/v1/batches", 404, "not_found"),
        ("POST", "/v1/responses/compact", 405, "method_not_allowed"),
    ],
)
async def test_a_request_without_an_endpoint_learns_which_one_there_is_not(
    method: str, path: str, status: int, code: str
) -> None:
    reply = await AsgiCall(app_of(FakeEngine()), path, method=method).run()
    message = f"This server has no endpoint {method} {path}."
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    assert (reply.status, reply.json) == (status, {"error": error})
