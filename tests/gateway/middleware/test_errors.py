"""The error response to every kind of failure."""

import gzip
import json
import logging
from typing import Literal

import anyio.to_thread
import orjson
import pytest
from pydantic import BaseModel, Field, ValidationError

from engine.errors import Busy, EngineError, EngineFault, LoadError, RequestError, Unavailable
from gateway.middleware import errors
from gateway.middleware.errors import Problem, RefusedError
from gateway.middleware.request_id import current_request_id
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get
from tests.gateway.fake_engine import FakeEngine
from tests.threads import refuse_in_thread


class SlowReader(EngineError):
    """An engine error that the table does not name."""


def wait_of(seconds: str, milliseconds: str) -> dict[str, str]:
    return {"retry-after": seconds, "retry-after-ms": milliseconds, "x-should-retry": "true"}


@pytest.mark.parametrize(
    ("error", "status", "type_", "retry"),
    [
        (RequestError("m", code="context_length_exceeded"), 400, "invalid_request_error", {}),
        (Busy("m", code="queue_full"), 429, "rate_limit_error", wait_of("1", "1000")),
        (Busy("m", code="queue_full", retry_after=6.5), 429, "rate_limit_error", wait_of("7", "6500")),
        (Busy("m", code="queue_full", retry_after=0.2), 429, "rate_limit_error", wait_of("1", "1000")),
        (Busy("m", code="queue_timeout", retry_after=900), 503, "server_error", wait_of("60", "60000")),
        (Unavailable("m", code="loading", retry_after=33.0001), 503, "server_error", wait_of("34", "33001")),
        (Busy("m", code="queue_timeout"), 503, "server_error", wait_of("1", "1000")),
        (Unavailable("m", code="loading"), 503, "server_error", wait_of("2", "2000")),
        (EngineFault("m", code="engine_died"), 503, "server_error", wait_of("2", "2000")),
        (EngineFault("m", code="decode_failed"), 500, "server_error", {}),
        (LoadError("m"), 503, "server_error", {"x-should-retry": "false"}),
        (SlowReader("m"), 500, "server_error", {}),
    ],
    ids=lambda value: f"{type(value).__name__} {value.code}" if isinstance(value, EngineError) else "",
)
def test_engine_errors_have_their_status_and_type(
    error: EngineError, status: int, type_: str, retry: dict[str, str]
) -> None:
    problem = errors.problem_for(error)
    assert (problem.status, problem.type, problem.message, problem.code) == (status, type_, "m", error.code)
    assert problem.headers == retry
    assert not problem.unexpected


@pytest.mark.anyio
async def test_a_lack_of_threads_is_temporary_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(FakeEngine())
    monkeypatch.setattr(anyio.to_thread, "run_sync", refuse_in_thread)
    reply = await get(app, "/api/tags")
    assert (reply.status, reply.header("retry-after")) == (503, "1")
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert (record.getMessage(), record.exc_info) == ("a request failed: can't start new thread", None)


def test_a_request_error_names_the_field_at_fault() -> None:
    assert errors.problem_for(RequestError("m", param="max_tokens")).param == "max_tokens"


def test_a_long_message_is_cut() -> None:
    message = errors.problem_for(RequestError(f"unknown name: {'x' * 70_000}", code="invalid_grammar")).message
    assert message == f"unknown name: {'x' * 70_000}"[: errors.MAX_MESSAGE] + "…"
    assert errors.problem_for(RequestError("x" * errors.MAX_MESSAGE)).message == "x" * errors.MAX_MESSAGE


class Body(BaseModel):
    prompt: str | list[int]
    n: int = 1


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "prompt", "missing_required_parameter"),
        ({"prompt": {}}, "prompt", "invalid_type"),
        ({"prompt": "x", "n": "many"}, "n", "invalid_value"),
        ([], None, "invalid_type"),
    ],
)
def test_a_validation_error_names_the_field_at_fault(body: object, param: str | None, code: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Body.model_validate(body)
    problem = errors.problem_for(caught.value)
    assert (problem.status, problem.param, problem.code) == (400, param, code)
    assert (param or "") in problem.message


class Inner(BaseModel):
    effort: Literal["low"] | None = None
    level_: int = Field(0, alias="level")


class Outer(BaseModel):
    inner: Inner | None = None
    either: str | Inner = ""
    list_: list[int] = Field([], alias="list")
    inners: list[Inner] | None = None
    lists: list[int] | list[bool] = []
    map: dict[str, int] = {}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"inner": {"effort": "x"}}, "inner.effort"),
        ({"inner": {"level": "x"}}, "inner.level"),
        ({"inner": 5}, "inner"),
        ({"either": {"level": "x"}}, "either"),
        ({"list": [0, "x"]}, "list[1]"),
        ({"list": "x"}, "list"),
        ({"inners": [{}, {"level": "x"}]}, "inners[1].level"),
        ({"lists": [0, "x"]}, "lists"),
        ([], None),
    ],
)
def test_a_validation_error_names_a_field_of_an_inner_object_by_its_path(body: object, param: str | None) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(body)
    problem = errors.validation_problem(caught.value, Outer)
    assert problem.param == param
    assert problem.message.startswith(f"{param}: " if param else "should be an object")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inner": "x"}, "inner: should be an object"),
        ({"list": {}}, "list: should be an array"),
        ({"map": []}, "map: should be an object"),
        ([], "should be an object"),
    ],
)
def test_a_validation_error_has_the_words_of_json(body: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(body)
    assert errors.validation_problem(caught.value, Outer).message == message


def test_a_body_that_pydantic_cannot_parse_is_a_400() -> None:
    with pytest.raises(ValidationError) as caught:
        Body.model_validate_json(b"{")
    assert errors.problem_for(caught.value).code == "invalid_json"


@pytest.mark.parametrize("loads", [json.loads, orjson.loads])
def test_malformed_json_is_a_400(loads: object) -> None:
    assert callable(loads)
    with pytest.raises(json.JSONDecodeError) as caught:
        loads(b"{")
    problem = errors.problem_for(caught.value)
    assert (problem.status, problem.code) == (400, "invalid_json")


def test_a_refused_error_keeps_its_problem() -> None:
    problem = Problem(status=418, message="m")
    assert errors.problem_for(RefusedError(problem)) is problem


def test_a_defect_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    token = current_request_id.set("req_1")
    problem = errors.report(ValueError("a secret"))
    current_request_id.reset(token)
    assert (problem.status, problem.code, problem.unexpected) == (500, "internal_error", True)
    assert "req_1" in problem.message
    assert "secret" not in problem.message
    assert "a secret" in caplog.text


def test_expected_errors_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    errors.report(RequestError("m"))
    assert not caplog.records


def test_an_error_response_has_openais_shape() -> None:
    problem = Problem(status=429, message="m", type="t", code="c", param="p", headers={"retry-after": "1"})
    response = errors.response_for(problem)
    assert response.status_code == 429
    assert response.headers["content-type"] == "application/json"
    assert response.headers["retry-after"] == "1"
    assert orjson.loads(bytes(response.body)) == {"error": {"message": "m", "type": "t", "param": "p", "code": "c"}}


@pytest.mark.parametrize(
    ("status", "headers", "retries"),
    [
        (400, {}, "false"),
        (404, {}, "false"),
        (413, {}, "false"),
        (408, {}, None),
        (429, {}, None),
        (429, errors.retry_after(3), "true"),
        (429, errors.NO_RETRY, "false"),
        (500, {}, None),
        (503, errors.retry_after(3), "true"),
    ],
)
def test_a_client_error_that_a_retry_would_repeat_says_so(
    status: int, headers: dict[str, str], retries: str | None
) -> None:
    response = errors.response_for(Problem(status=status, message="m", headers=headers))
    assert response.headers.get("x-should-retry") == retries


@pytest.mark.anyio
async def test_a_compressed_body_is_not_unpacked() -> None:
    packed = gzip.compress(b'{"prompt": "' + b"x" * 1000 + b'"}')
    headers = {"content-encoding": "gzip"}
    call = await AsgiCall(app_of(FakeEngine()), "/v1/completions", packed, headers=headers).run()
    assert (call.status, call.json["error"]["code"]) == (415, "unsupported_encoding")
