"""Routes made from tables of endpoints, and the API of a path before it is routed."""

from collections.abc import Awaitable, Callable, Sequence

import pytest
from starlette.types import Scope

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import Api, BodilessEndpoint, Call, Endpoint
from gateway.apis.routing import Router, conventions_for, routes
from gateway.middleware.errors import Problem
from gateway.middleware.limits import RequestLimits
from gateway.middleware.request_scope import RequestScope
from gateway.preparation.preparer import InlinePreparer
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import FakeEngine


async def answer(call: Call[None]) -> JsonReply[str]:
    return JsonReply(call.caller.request_id)


async def fail(_call: Call[None]) -> JsonReply[str]:
    raise KeyError("a defect")


def endpoint(
    method: str, path: str, *, shared: bool = False, handler: Callable[[Call[None]], Awaitable[JsonReply[str]]] = answer
) -> Endpoint[None, None, str]:
    return BodilessEndpoint(method=method, path=path, id=path, summary="", handler=handler, answer=str, shared=shared)


def api(name: bytes, *endpoints: Endpoint[None, None, str], header: bytes = b"") -> Api:
    return Api(endpoints, lambda _problem: name, str, client_header=header)


SHARED = (endpoint("GET", "/s", shared=True), endpoint("GET", "/s/{id}", shared=True))
APIS = (
    api(b"first", endpoint("GET", "/a"), endpoint("GET", "/a/{id}"), endpoint("DELETE", "/a/{id}"), *SHARED),
    api(b"second", endpoint("POST", "/b"), endpoint("GET", "/b/{id:path}"), endpoint("POST", "/d"), header=b"two"),
)


def test_a_path_has_one_route_with_all_of_its_methods() -> None:
    made = {route.path: route.methods for route in routes(APIS, InlinePreparer())}
    assert made == {
        "/a": {"GET", "HEAD"},
        "/a/{id}": {"GET", "HEAD", "DELETE"},
        "/b": {"POST"},
        "/b/{id:path}": {"GET", "HEAD"},
        "/d": {"POST"},
        "/s": {"GET", "HEAD"},
        "/s/{id}": {"GET", "HEAD"},
    }


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/chat/completions/"), ("GET", "/v1/responses/resp_1/"), ("GET", "/api/tags/")]
)
async def test_a_path_with_a_slash_at_its_end_is_another_path(method: str, path: str) -> None:
    """A redirect would lead to any host that the request names."""
    reply = await AsgiCall(app_of(FakeEngine()), path, method=method, headers={"host": "other.example"}).run()
    assert (reply.status, reply.header("location")) == (404, None)


@pytest.mark.anyio
async def test_an_unknown_path_with_two_slashes_at_its_beginning_has_openais_shape_of_errors() -> None:
    """It is that of a client whose base URL ends with a slash, and not below the path `/`, which Ollama's API has."""
    reply = await AsgiCall(app_of(FakeEngine()), "//v1/models", method="GET").run()
    assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")


def shapes(paths: Sequence[str], headers: Scope) -> dict[str, bytes]:
    conventions, problem = conventions_for(APIS), Problem(status=404, message="m")
    return {path: conventions({"path": path, **headers}).encode_error(problem) for path in paths}


def test_a_path_has_its_apis_shape_of_errors_whatever_the_method() -> None:
    paths = ("/a", "/a/x", "/b", "/b/x/y", "/a/x/y", "/", "/c", "/d/x/y", "/s", "/s/x")
    assert shapes(paths, {"headers": [(b"one", b"")]}) == {
        "/a": b"first",
        "/a/x": b"first",
        "/b": b"second",
        "/b/x/y": b"second",
        "/a/x/y": b"first",
        "/": b"first",
        "/c": b"first",
        "/d/x/y": b"second",
        "/s": b"first",
        "/s/x": b"first",
    }


def test_a_client_that_its_header_names_has_its_shape_of_errors_where_the_path_is_shared_or_unknown() -> None:
    assert shapes(("/a", "/a/x/y", "/s", "/s/x", "/s/x/y", "/c"), {"headers": [(b"one", b""), (b"two", b"1")]}) == {
        "/a": b"first",
        "/a/x/y": b"first",
        "/s": b"second",
        "/s/x": b"second",
        "/s/x/y": b"second",
        "/c": b"second",
    }


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/files", 404, "not_found"),
        ("POST", "/v1/batches", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/responses/compact", 405, "method_not_allowed"),
    ],
)
async def test_a_request_without_an_endpoint_learns_which_one_there_is_not(
    method: str, path: str, status: int, code: str
) -> None:
    reply = await AsgiCall(app_of(FakeEngine()), path, method=method).run()
    allowed = reply.header("allow")
    assert (allowed is not None) == (status == 405)
    message = f"This server has no endpoint {method} {path}" + (f"; it has {allowed}." if allowed else ".")
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    assert (reply.status, reply.json) == (status, {"error": error})


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/f", "/f/x"])
async def test_a_defect_is_answered_and_logged_alike_whether_its_path_has_parameters(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = api(b"first", *(endpoint("GET", one, handler=fail) for one in ("/f", "/f/{id}")))
    app = RequestScope(Router([failing], InlinePreparer()), RequestLimits())
    reply = await AsgiCall(app, path, method="GET").run()
    assert (reply.status, reply.json["error"]["code"]) == (500, "internal_error")
    assert [record.getMessage() for record in caplog.records] == ["unexpected KeyError"]
