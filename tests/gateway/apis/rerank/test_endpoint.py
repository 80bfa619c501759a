"""Re-ranking without sockets: the engine's requests, the answers in three shapes, and errors."""

import math
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest

from engine import Ranking
from gateway.apis.rerank.api import rerank_api
from gateway.apis.rerank.request import MAX_DOCUMENTS
from gateway.middleware.errors import Problem
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import MODEL, FakeEngine, score_of

pytestmark = pytest.mark.anyio
PATHS = ["/v1/rerank", "/rerank", "/reranking", "/v1/reranking"]
PATH, COHERE = PATHS[0], "/v2/rerank"
DOCUMENTS = ["a", "bc", "def"]
BEST_FIRST = [1, 2, 0]
BODY = {"query": "q", "documents": DOCUMENTS}


def probability(index: int) -> float:
    return 1 / (1 + math.exp(-score_of(index)))


@pytest.mark.parametrize("path", PATHS)
async def test_documents_are_ordered_by_their_scores_in_jinas_shape(path: str) -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), path, {"model": "tiny", **BODY})
    assert reply.status == 200
    assert reply.json == {
        "object": "list",
        "model": "tiny",
        "usage": {"prompt_tokens": 6, "total_tokens": 6},
        "results": [{"index": at, "relevance_score": pytest.approx(probability(at))} for at in BEST_FIRST],
    }
    [asked] = engine.embeddings
    assert asked.request.inputs == tuple(DOCUMENTS)
    assert asked.request.ranking == Ranking(query="q")
    assert asked.request.id == reply.header("x-request-id")


@pytest.mark.parametrize("body", [BODY, {"query": "q", "texts": DOCUMENTS}])
async def test_scores_are_those_of_the_model_as_in_llama_server(body: dict[str, Any]) -> None:
    def scores(answer: Any) -> list[float]:
        results = answer if isinstance(answer, list) else answer["results"]
        return [one.get("score", one.get("relevance_score")) for one in results]

    app = app_of(FakeEngine(), answers_like="llama-server")
    raw = await post(app, PATH, {"model": "tiny", **body})
    assert scores(raw.json) == [score_of(at) for at in BEST_FIRST]
    chosen = await post(app, PATH, {"model": "tiny", **body, "raw_scores": False})
    assert scores(chosen.json) == pytest.approx([probability(at) for at in BEST_FIRST])


@pytest.mark.parametrize(("like", "code"), [(True, 400), (False, "invalid_value")])
async def test_errors_are_those_of_the_server_whose_answers_are_asked_for(*, like: bool, code: object) -> None:
    problem = Problem(status=400, message="m", code="invalid_value", param="query")
    api = rerank_api(cast("Any", None), like_llama_server=like)
    assert orjson.loads(api.encode_error(problem))["error"]["code"] == code


async def test_texts_are_answered_in_teis_shape() -> None:
    body = {"query": "q", "texts": DOCUMENTS, "return_text": True, "raw_scores": True}
    reply = await post(app_of(FakeEngine()), PATH, body)
    assert reply.json == [{"index": at, "score": score_of(at), "text": DOCUMENTS[at]} for at in BEST_FIRST]


async def test_cohere_gets_its_own_shape_and_cut_documents() -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), COHERE, {"model": "tiny", **BODY, "top_n": 2})
    assert reply.json == {
        "id": reply.header("x-request-id"),
        "results": [{"index": at, "relevance_score": pytest.approx(probability(at))} for at in BEST_FIRST[:2]],
        "meta": {"tokens": {"input_tokens": 6, "output_tokens": 0}},
    }
    [asked] = engine.embeddings
    assert asked.request.ranking == Ranking(query="q", document_tokens=4096)
    assert asked.request.truncation == -1


async def test_documents_may_be_objects_and_are_repeated_on_request() -> None:
    engine = FakeEngine()
    body = {"query": "q", "documents": [{"text": "a"}, "bc"], "return_documents": True, "top_n": 99}
    reply = await post(app_of(engine), PATH, body)
    assert [result["document"] for result in reply.json["results"]] == [{"text": "bc"}, {"text": "a"}]
    assert engine.embeddings[0].request.inputs == ("a", "bc")


async def test_probabilities_of_the_model_stay_as_they_are() -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, ranks=True, rank_probabilities=True)
    reply = await post(app_of(engine), PATH, BODY)
    assert [result["relevance_score"] for result in reply.json["results"]] == [score_of(at) for at in BEST_FIRST]


async def test_documents_are_cut_as_requested() -> None:
    engine = FakeEngine()
    await post(app_of(engine), PATH, {**BODY, "truncate": True, "max_tokens_per_doc": 7})
    assert engine.embeddings[0].request.ranking == Ranking(query="q", document_tokens=7)
    assert engine.embeddings[0].request.truncation == -1


@pytest.mark.parametrize(
    ("fields", "truncation"),
    [
        ({}, None),
        ({"truncate_prompt_tokens": 9, "truncation_side": "right"}, 9),
        ({"truncate_prompt_tokens": -1}, -1),
        ({"truncate": True, "truncate_prompt_tokens": 9}, 9),
    ],
)
async def test_pairs_are_cut_as_requested(fields: dict[str, object], truncation: int | None) -> None:
    engine = FakeEngine()
    assert (await post(app_of(engine), PATH, {**BODY, **fields})).status == 200
    assert engine.embeddings[0].request.truncation == truncation


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"query": None}, "query"),
        ({"query": 1}, "query"),
        ({"documents": None}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"documents": [1]}, "documents"),
        ({"documents": [{"text": 1}]}, "documents[0].text"),
        ({"documents": ["a"] * (MAX_DOCUMENTS + 1)}, "documents"),
        ({"texts": ["a"]}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"truncation_direction": "Left"}, "truncation_direction"),
        ({"truncation_side": "left"}, "truncation_side"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ],
)
async def test_a_wrong_field_is_named_and_never_reaches_the_engine(changes: dict[str, object], param: str) -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), PATH, {**BODY, **changes})
    assert reply.status == 400
    assert reply.json["error"]["param"].startswith(param)
    assert engine.embeddings == []
