"""A re-ranking request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import EmbeddingRequest, Ranking
from gateway.apis.rerank.request import CohereRerankBody, RerankBody


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankCall:
    """A re-ranking request."""

    model: str | None
    """Name of the model."""
    request: EmbeddingRequest
    """The engine's request, without an id. Its inputs are the documents."""
    top: int | None = None
    """Number of documents in the answer; None for all."""
    tei: bool = False
    """True for an answer in TEI's shape."""
    shows_documents: bool = False
    """True to repeat the documents in the answer."""
    raw_scores: bool = False
    """True for the scores as the model computes them, not as probabilities."""


def prepare_rerank(body: RerankBody) -> RerankCall:
    """Return the request in a body of Jina's or TEI's shape."""
    ranking = Ranking(query=body.query, document_tokens=body.max_tokens_per_doc)
    documents = body.texts if body.documents is None else body.documents
    truncation = -1 if body.truncate and body.truncate_prompt_tokens is None else body.truncate_prompt_tokens
    return RerankCall(
        model=body.model,
        request=EmbeddingRequest(id="", inputs=tuple(documents or ()), ranking=ranking, truncation=truncation),
        top=body.top_n,
        tei=body.texts is not None,
        shows_documents=body.return_documents or body.return_text,
        raw_scores=body.raw_scores,
    )


def prepare_cohere(body: CohereRerankBody) -> RerankCall:
    """Return the request in a body of Cohere's shape."""
    ranking = Ranking(query=body.query, document_tokens=body.max_tokens_per_doc)
    documents = tuple(body.documents)
    request = EmbeddingRequest(id="", inputs=documents, ranking=ranking, truncation=-1, priority=body.priority)
    return RerankCall(model=body.model, request=request, top=body.top_n)
