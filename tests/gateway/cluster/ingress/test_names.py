"""The model that a request names, found without making the values of its body."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from gateway.cluster.ingress.names import ModelNames, requested_model
from gateway.settings.table import ServedModel
from tests.gateway.application import settings_for

POST: dict[str, Any] = {"path": "/v1/chat/completions", "query_string": b""}
SHOW: dict[str, Any] = {"path": "/api/show", "query_string": b""}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"messages":[{"model":"b"}],"model":"a"}', "a"),
        (b'{"model":"a","model":"b"}', "b"),
        (b'{"model":"a","temperature":1e400}', "a"),
        (b"{}", None),
        (b"", None),
        (b'{"model":""}', None),
        (b'{"model":1}', None),
        (b'{"model":null}', None),
        (b'{"model":"\\ud800"}', None),
        (b'{"model":"\xff"}', None),
        (b'{"model":"a"', None),
        (b'["model"]', None),
        (b"[" * 100_000, None),
        (b'{"a":' * 100_000, None),
    ],
)
def test_the_name_in_the_body_is_found_if_there_is_one(body: bytes, name: str | None) -> None:
    assert requested_model(POST, body) == name


@pytest.mark.parametrize(
    ("body", "name"),
    [(b'{"name":"a"}', "a"), (b'{"model":"a","name":"b"}', "a"), (b'{"model":null,"name":"b"}', "b"), (b"{}", None)],
)
def test_older_clients_of_ollama_name_the_model_otherwise(body: bytes, name: str | None) -> None:
    assert requested_model(SHOW, body) == name
    assert requested_model(POST, b'{"name":"a"}') is None


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        ({"path": "/v1/models/x/y", "query_string": b"model=z"}, "x/y"),
        ({"path": "/v1/models/x%2Fy", "query_string": b""}, "x%2Fy"),  # the server has decoded the path
        ({"path": "/props", "query_string": b"model=z"}, "z"),
        ({"path": "/props", "query_string": b"autoload=0"}, None),
    ],
)
def test_a_path_and_a_query_name_models(scope: dict[str, Any], name: str | None) -> None:
    assert requested_model(scope, b"") == name


@pytest.mark.parametrize(("body", "name"), [(b'{"model":"a"}', "a"), (b'[{"id":0,"scale":1}]', "z"), (b"", "z")])
def test_the_body_comes_before_the_query_as_on_one_machine(body: bytes, name: str) -> None:
    assert requested_model({**POST, "query_string": b"model=z"}, body) == name


@pytest.mark.parametrize("name", [None, "default", "default:latest"])
def test_requests_without_a_name_to_rank_are_for_a_model_that_ranks(name: str | None) -> None:
    settings = settings_for()
    chat, ranker = settings.for_model(), settings.for_model(pooling="rank")
    both = ModelNames([ServedModel("chat", Path("a.gguf"), chat), ServedModel("ranker", Path("b.gguf"), ranker)])
    found = [both.find(name, path) for path in ("/rerank", "/v2/rerank", "/v1/completions")]
    assert found == ["ranker", "ranker", "chat"]
    assert ModelNames([ServedModel("chat", Path("a.gguf"), chat)]).find(name, "/rerank") == "chat"


def test_a_model_that_is_named_default_is_the_one_that_is_asked_for() -> None:
    one = settings_for().for_model()
    names = ModelNames([ServedModel("chat", Path("a.gguf"), one), ServedModel("default", Path("b.gguf"), one)])
    found = [names.find(name, "/rerank") for name in ("default", "default:latest", None)]
    assert found == ["default", "default", "chat"]


@pytest.mark.parametrize("value", [b"[],", b'{"a":{}},', b"1,", b'"a",'])
def test_a_body_of_many_values_takes_no_memory(value: bytes) -> None:
    body = b'{"messages":[' + value * 500_000 + b'0],"model":"a"}'
    tracemalloc.start()
    try:
        assert requested_model(POST, body) == "a"
        assert tracemalloc.get_traced_memory()[1] < 2**16
    finally:
        tracemalloc.stop()
