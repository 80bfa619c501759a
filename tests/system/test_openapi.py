"""Our answers against OpenAI's own description of its interface."""

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from jsonschema_rs import ValidationError

from tests.program import GUARD, serving_program
from tests.repeat import first
from tests.system.description import Description

COMPLETIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "choices": {"prompt": ["One", "Two"], "n": 2},
    "stopped": {"stop": [" "]},
    "nothing": {"max_tokens": 0},
    "log-probabilities": {"logprobs": 2},
    "echoed": {"echo": True},
}
ERRORS: dict[str, tuple[int, dict[str, Any]]] = {
    "a field out of range": (400, {"temperature": 3}),
    "a wrong type": (400, {"max_tokens": "many"}),
    "too long": (400, {"max_tokens": 100_000}),
    "no such model": (404, {"model": "other"}),
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        serving_program("--slots", "2") as (_process, port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", trust_env=False, timeout=GUARD) as client,
    ):
        yield client


def post(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/completions", json={"model": "default", "prompt": "Once upon a time", **body})


def test_the_description_rejects_wrong_content(description: Description) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"id": "x"}, "CreateCompletionResponse"),
        ({"error": {"message": "x"}}, "ErrorResponse"),
    ]
    for content, name in wrong:
        with pytest.raises(ValidationError):
            description.check(content, name)


def test_every_documented_default_may_be_sent(client: httpx.Client, description: Description) -> None:
    fields = description.schemas["CreateCompletionRequest"]["properties"]
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    assert len(defaults) > 10
    assert post(client, **defaults).status_code == 200


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_a_completion_matches_the_description(client: httpx.Client, description: Description, completion: str) -> None:
    answer = post(client, **COMPLETIONS[completion])
    assert answer.status_code == 200
    description.check(answer.json(), "CreateCompletionResponse")


@pytest.mark.parametrize("usage", first(1, [None, {"include_usage": True}, {"include_usage": False}]))
@pytest.mark.parametrize("completion", COMPLETIONS)
def test_each_chunk_of_a_stream_matches_the_description(
    client: httpx.Client, description: Description, completion: str, usage: dict[str, bool] | None
) -> None:
    answer = post(client, stream=True, stream_options=usage, **COMPLETIONS[completion])
    *chunks, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    for chunk in chunks:
        description.check(orjson.loads(chunk.removeprefix("data: ")), "CompletionChunk")


@pytest.mark.parametrize("fields", [{}, {"input": ["a", "b"], "user": "u"}, {"dimensions": 2}])
def test_embeddings_match_the_description(
    client: httpx.Client, description: Description, fields: dict[str, Any]
) -> None:
    answer = client.post("/embeddings", json={"model": "default", "input": "a", **fields})
    assert answer.status_code == 200
    description.check(answer.json(), "CreateEmbeddingResponse")


def test_models_match_the_description(client: httpx.Client, description: Description) -> None:
    listed = client.get("/models").json()
    description.check(listed, "ListModelsResponse")
    description.check(client.get(f"/models/{listed['data'][0]['id']}").json(), "Model")


@pytest.mark.parametrize("error", ERRORS)
def test_errors_of_completions_match_the_description(
    client: httpx.Client, description: Description, error: str
) -> None:
    status, body = ERRORS[error]
    answer = post(client, **body)
    assert answer.status_code == status
    description.check(answer.json(), "ErrorResponse")


def test_errors_of_routing_match_the_description(client: httpx.Client, description: Description) -> None:
    for answer, status in (
        (client.get("/models/other"), 404),
        (client.get("/nowhere"), 404),
        (client.get("/completions"), 405),
        (client.post("/completions", content="{"), 400),
    ):
        assert answer.status_code == status
        description.check(answer.json(), "ErrorResponse")
