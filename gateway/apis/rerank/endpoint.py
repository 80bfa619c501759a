"""Endpoints of re-ranking."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.rerank.answer import (
    CohereReranking,
    RerankAnswer,
    cohere_reranking,
    reranking,
    text_scores,
)
from gateway.apis.rerank.call import RerankCall, prepare_cohere, prepare_rerank
from gateway.apis.rerank.request import CohereRerankBody, LlamaRerankBody, RerankBody
from gateway.apis.rerank.scores import Ranked, ranked
from gateway.middleware.caller import Caller
from gateway.serving.models import Models
from gateway.serving.served import Task

_SUMMARY = "Order documents by their relevance to a query."
_PATHS = ("/v1/rerank", "/rerank", "/reranking", "/v1/reranking")
_COHERE = "/v2/rerank"
RANKING_PATHS = frozenset({*_PATHS, _COHERE})
"""Paths of all endpoints of re-ranking."""


class RerankEndpoints:
    """Handlers for re-ranking."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def rerank(self, call: Call[RerankCall]) -> JsonReply[RerankAnswer]:
        """Return the most relevant documents in Jina's shape or in TEI's."""
        asked = call.prepared
        name, best, tokens = await self._rank(call.caller, asked)
        documents = [str(one) for one in asked.request.inputs] if asked.shows_documents else None
        pieces = text_scores(best, documents) if asked.tei else reranking(name, best, tokens, documents)
        return await JsonReply.in_pieces(pieces)

    async def cohere(self, call: Call[RerankCall]) -> JsonReply[CohereReranking]:
        """Return the most relevant documents in Cohere's shape."""
        _name, best, tokens = await self._rank(call.caller, call.prepared)
        return JsonReply(cohere_reranking(call.caller.request_id, best, tokens))

    async def _rank(self, caller: Caller, asked: RerankCall) -> tuple[str, list[Ranked], int]:
        """Return the name of the model, its most relevant documents, and the number of tokens."""
        served = await self._models.resolve(caller, asked.model, Task.RANK)
        names = {"documents": "texts"} if asked.tei else None
        result = await served.embed(caller, asked.request, names)
        logits = not (asked.raw_scores or served.loaded.rank_probabilities)
        return served.name, ranked(result, top=asked.top, logits=logits), sum(result.tokens)


def rerank_endpoints(models: Models, *, raw: bool) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints in the shapes of Jina and TEI. `raw` for llama-server's scores where none are chosen."""
    handler = RerankEndpoints(models).rerank
    return tuple(
        Endpoint(
            method="POST",
            path=path,
            id=path.strip("/").replace("/", "_"),
            summary=_SUMMARY,
            body=LlamaRerankBody if raw else RerankBody,
            prepare=prepare_rerank,
            handler=handler,
            answer=RerankAnswer,  # type: ignore[arg-type]  # a union is no type for mypy
            refusals=QUEUED,
        )
        for path in _PATHS
    )


def cohere_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint in Cohere's shape."""
    cohere = Endpoint(
        method="POST",
        path=_COHERE,
        id="v2_rerank",
        summary=_SUMMARY,
        body=CohereRerankBody,
        prepare=prepare_cohere,
        handler=RerankEndpoints(models).cohere,
        answer=CohereReranking,
        refusals=QUEUED,
    )
    return (cohere,)
