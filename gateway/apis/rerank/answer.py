"""Answers of re-ranking, and Cohere's errors."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NotRequired, TypeAlias

import orjson

from gateway.apis.answers.pieces import HOLE, array, filled
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.rerank.scores import Ranked
from gateway.middleware.errors import Problem

_SCORES_PER_PIECE = 512
"""Results without texts in one piece of an answer."""


class Document(JsonObject):
    """The text of a document."""

    text: str


class Result(JsonObject):
    """A document by its position in the request."""

    index: Count
    relevance_score: float
    document: NotRequired[Document]


class RerankUsage(JsonObject):
    """Token counts of all pairs of the query and a document."""

    prompt_tokens: Count
    total_tokens: Count


class Reranking(JsonObject):
    """The most relevant documents, best first, in Jina's shape."""

    object: Literal["list"]
    model: str
    usage: RerankUsage
    results: list[Result]


class TextScore(JsonObject):
    """A text by its position in the request, in TEI's shape."""

    index: Count
    score: float
    text: NotRequired[str]


RerankAnswer: TypeAlias = Reranking | list[TextScore]
"""Answer in the shape of the request."""


class TokenCounts(JsonObject):
    """Token counts in Cohere's shape."""

    input_tokens: Count
    output_tokens: Count


class Meta(JsonObject):
    """Cost of a request."""

    tokens: TokenCounts


class CohereReranking(JsonObject):
    """The most relevant documents, best first, in Cohere's shape."""

    id: str
    results: list[Result]
    meta: Meta


class CohereError(JsonObject):
    """The error of a failed request in Cohere's shape."""

    message: str


def reranking(model: str, best: Sequence[Ranked], tokens: int, documents: Sequence[str] | None) -> Iterator[bytes]:
    """Return the JSON of an answer in Jina's shape in pieces, with the documents unless None."""
    usage: RerankUsage = {"prompt_tokens": tokens, "total_tokens": tokens}
    whole: Reranking = {"object": "list", "model": model, "usage": usage, "results": HOLE}
    return filled(whole, _array((_result(one, documents) for one in best), documents))


def text_scores(best: Sequence[Ranked], texts: Sequence[str] | None) -> Iterator[bytes]:
    """Return the JSON of an answer in TEI's shape in pieces, with the texts unless None."""
    return _array((_text_score(one, texts) for one in best), texts)


def cohere_reranking(request_id: str, best: Sequence[Ranked], tokens: int) -> CohereReranking:
    """Return the answer in Cohere's shape."""
    meta: Meta = {"tokens": {"input_tokens": tokens, "output_tokens": 0}}
    return {"id": request_id, "results": [_result(one, None) for one in best], "meta": meta}


def cohere_error(problem: Problem) -> bytes:
    """Return an error in Cohere's shape."""
    answer: CohereError = {"message": problem.message}
    return orjson.dumps(answer)


def _array(items: Iterable[object], texts: Sequence[str] | None) -> Iterator[bytes]:
    return array(items, _SCORES_PER_PIECE if texts is None else 1)


def _result(one: Ranked, documents: Sequence[str] | None) -> Result:
    result: Result = {"index": one.index, "relevance_score": one.score}
    if documents is not None:
        result["document"] = {"text": documents[one.index]}
    return result


def _text_score(one: Ranked, texts: Sequence[str] | None) -> TextScore:
    score: TextScore = {"index": one.index, "score": one.score}
    if texts is not None:
        score["text"] = texts[one.index]
    return score
