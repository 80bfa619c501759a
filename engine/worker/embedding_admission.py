"""Validation and tokenisation of embedding requests, before they are queued."""

from collections.abc import Collection, Iterable

from engine.core.embedding.step import EmbeddingJob, EmbeddingLimits
from engine.core.model import Model
from engine.errors import RequestError
from engine.request import EmbeddingInput, EmbeddingRequest, Ranking
from engine.worker.admission import BYTES_PER_TOKEN, begins_too_long, check_ids
from engine.worker.slices import Slices, effort_of_text


def admit_embedding(key: int, request: EmbeddingRequest, model: Model, limits: EmbeddingLimits) -> Slices[EmbeddingJob]:
    """Validate and tokenise an embedding request, and return its job.

    Raises:
        RequestError: The request can never be served.
    """
    _check_task(request, model)
    if request.ranking is None:
        inputs = yield from _texts(request.inputs, model, limits.longest)
    else:
        inputs = yield from _pairs(request.inputs, request.ranking, model, limits.longest)
    return EmbeddingJob(key, request, inputs)


def _check_task(request: EmbeddingRequest, model: Model) -> None:
    if (request.ranking is not None) == model.info.ranks:
        return
    task = "ranks documents and computes no embeddings" if model.info.ranks else "cannot rank documents"
    raise RequestError(f"this model {task}", param="model", code="unsupported_model")


def _texts(inputs: Iterable[EmbeddingInput], model: Model, longest: int) -> Slices[list[list[int]]]:
    for one in inputs:
        if isinstance(one, tuple):
            _check_text(one, model, longest)
    tokens: list[list[int]] = []
    for one in inputs:
        of_one = list(one) if isinstance(one, tuple) else (yield from _text_tokens(one, model, longest))
        tokens.append(of_one)
    return tokens


def _text_tokens(text: str, model: Model, longest: int) -> Slices[list[int]]:
    if (yield from begins_too_long(text, model, longest)):
        raise _too_long(longest, f"at least {longest + 1}")
    yield effort_of_text(len(text))
    tokens = model.tokenize(text)
    _check_text(tokens, model, longest)
    return tokens


def _check_text(tokens: Collection[int], model: Model, longest: int) -> None:
    if not tokens:
        raise RequestError("an input is empty", param="input", code="empty_input")
    check_ids(tokens, model.info.vocabulary, "input")
    if len(tokens) > longest:
        raise _too_long(longest, str(len(tokens)))


def _too_long(longest: int, count: str) -> RequestError:
    return RequestError(
        f"This model embeds texts of {longest} tokens at most. However, an input has {count} tokens.",
        param="input",
        code="context_length_exceeded",
    )


def _pairs(
    documents: Iterable[EmbeddingInput], ranking: Ranking, model: Model, longest: int
) -> Slices[list[list[int]]]:
    if (yield from begins_too_long(ranking.query, model, longest)):
        raise _pair_too_long(longest, "query")
    pairs: list[list[int]] = []
    for document in documents:
        pair = yield from _pair_tokens(str(document), ranking, model, longest)
        pairs.append(pair)
    return pairs


def _pair_tokens(document: str, ranking: Ranking, model: Model, longest: int) -> Slices[list[int]]:
    """Return the tokens of the query and a document, which is cut as the request asks."""
    if ranking.document_tokens is not None:
        document = yield from _cut(document, ranking.document_tokens, model)
    if ranking.truncates:
        document = document[: longest * BYTES_PER_TOKEN]
    elif (yield from begins_too_long(document, model, longest)):
        raise _pair_too_long(longest, "documents")
    while True:
        yield effort_of_text(len(ranking.query) + len(document))
        tokens = model.tokenize_pair(ranking.query, document)
        if len(tokens) <= longest:
            return tokens
        if not (ranking.truncates and document):
            raise _pair_too_long(longest, "documents" if document else "query")
        document = document[: len(document) * longest // len(tokens)]


def _cut(document: str, limit: int, model: Model) -> Slices[str]:
    """Return the longest beginning of a document that is known to have at most so many tokens."""
    document = document[: limit * BYTES_PER_TOKEN]
    while True:
        yield effort_of_text(len(document))
        count = len(model.tokenize(document, special=False, begin=False))
        if count <= limit:
            return document
        document = document[: len(document) * limit // count]


def _pair_too_long(longest: int, param: str) -> RequestError:
    return RequestError(
        f"This model ranks documents that have at most {longest} tokens together with the query. A longer document is "
        "cut if the request asks for it.",
        param=param,
        code="context_length_exceeded",
    )
