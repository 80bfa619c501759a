"""Validation and tokenisation of embedding requests, before they are queued."""

from collections.abc import Callable, Collection
from functools import partial

from engine.core.embedding.step import EmbeddingJob, EmbeddingLimits
from engine.core.kv.prefix import common_prefix
from engine.core.model import Model
from engine.errors import RequestError
from engine.request import EmbeddingRequest, Ranking
from engine.worker.admission import check_ids
from engine.worker.long_texts import beginning, begins_too_long
from engine.worker.slices import Slices, effort_of_text


def admit_embedding(key: int, request: EmbeddingRequest, model: Model, limits: EmbeddingLimits) -> Slices[EmbeddingJob]:
    """Validate and tokenise an embedding request, and return its job.

    Raises:
        RequestError: The request can never be served.
    """
    _check_task(request, model)
    longest = _longest(request.truncation, limits.longest)
    if request.ranking is None:
        inputs = yield from _texts(request, model, longest)
    else:
        inputs = yield from _pairs(request, request.ranking, model, longest)
    return EmbeddingJob(key, request, inputs)


def _check_task(request: EmbeddingRequest, model: Model) -> None:
    ranking = request.ranking is not None
    if ranking and not model.info.ranks:
        reason = "cannot rank documents"
    elif not ranking and model.info.ranks:
        reason = "ranks documents and computes no embeddings"
    elif not ranking and not model.info.embeds:
        reason = "cannot compute embeddings"
    else:
        return
    raise RequestError(f"this model {reason}", param="model", code="unsupported_model")


def _longest(truncation: int | None, longest: int) -> int:
    """Return the number of tokens that an input may have, or at which it is cut."""
    if truncation is None or truncation == -1:
        return longest
    if not 0 < truncation <= longest:
        message = f"inputs of this model are cut at 1 to {longest} tokens, or with -1 at {longest}"
        raise RequestError(message, param="truncate_prompt_tokens", code="invalid_value")
    return truncation


def _texts(request: EmbeddingRequest, model: Model, longest: int) -> Slices[list[list[int]]]:
    truncates = request.truncation is not None
    inputs = [one[:longest] if truncates and isinstance(one, tuple) else one for one in request.inputs]
    for one in inputs:
        if isinstance(one, tuple):
            _check_text(one, model, longest)
    texts: list[list[int]] = []
    for one in inputs:
        if isinstance(one, tuple):
            texts.append(list(one))
        else:
            tokens = yield from _text_tokens(one, model, longest, truncates=truncates)
            texts.append(tokens)
    return texts


def _text_tokens(text: str, model: Model, longest: int, *, truncates: bool) -> Slices[list[int]]:
    if truncates:
        text = yield from beginning(text, model, longest)
    elif (yield from begins_too_long(text, model, longest)):
        raise _too_long(longest, f"at least {longest + 1}")
    yield effort_of_text(len(text))
    tokens = model.tokenize(text)
    if truncates and len(tokens) > longest:
        tokens = _cut(tokens, model.tokenize(""), longest)
    _check_text(tokens, model, longest)
    return tokens


def _cut(tokens: list[int], added: list[int], longest: int) -> list[int]:
    """Return the first tokens of a text, with those that the model adds to each text, also at its end."""
    if len(added) > longest:
        message = f"this model adds {len(added)} tokens to each input, so that it cannot be cut at {longest}"
        raise RequestError(message, param="truncate_prompt_tokens", code="invalid_value")
    end = added[common_prefix(tokens, added, len(added)) :]
    return tokens[: longest - len(end)] + end


def _fitted(
    text: str, model: Model, tokenize: Callable[[str], list[int]], longest: int, *, query: str = ""
) -> Slices[tuple[str, list[int]]]:
    """Return the longest beginning of a text that is known to fit, and its tokens with those that are added.

    If those that are added do not fit alone, the beginning is empty.

    Args:
        text: the text.
        model: the model.
        tokenize: returns the tokens of a beginning, with those of the query and those that the model adds.
        longest: maximum number of tokens.
        query: the query.
    """
    text = yield from beginning(text, model, longest)
    yield effort_of_text(len(query) + len(text))
    tokens = tokenize(text)
    if len(tokens) <= longest:
        return text, tokens
    yield effort_of_text(len(query))
    added = len(tokenize(""))
    while text and len(tokens) > longest:  # a proportion of the text's own tokens: those of a query may be most of them
        text = text[: len(text) * max(longest - added, 0) // max(len(tokens) - added, 1)]
        yield effort_of_text(len(query) + len(text))
        tokens = tokenize(text)
    return text, tokens


def _check_text(tokens: Collection[int], model: Model, longest: int) -> None:
    if not tokens:
        raise RequestError("an input is empty", param="input", code="empty_input")
    check_ids(tokens, model.info.vocabulary, "input")
    if len(tokens) > longest:
        raise _too_long(longest, str(len(tokens)))


def _too_long(longest: int, count: str) -> RequestError:
    return RequestError(
        f"An input is too large: it may have {longest} tokens at most. However, it has {count} tokens.",
        param="input",
        code="context_length_exceeded",
    )


def _pairs(request: EmbeddingRequest, ranking: Ranking, model: Model, longest: int) -> Slices[list[list[int]]]:
    if (yield from begins_too_long(ranking.query, model, longest)):
        raise _pair_too_long(longest, "query")
    pairs: list[list[int]] = []
    for document in request.inputs:
        pair = yield from _pair(str(document), ranking, model, longest, truncates=request.truncation is not None)
        pairs.append(pair)
    return pairs


def _pair(document: str, ranking: Ranking, model: Model, longest: int, *, truncates: bool) -> Slices[list[int]]:
    """Return the tokens of the query and a document, which is cut as the request asks."""
    if (limit := ranking.document_tokens) is not None and limit <= longest:
        document, _ = yield from _fitted(document, model, partial(model.tokenize, special=False, begin=False), limit)
    tokenize = partial(model.tokenize_pair, ranking.query)
    if truncates:
        _, tokens = yield from _fitted(document, model, tokenize, longest, query=ranking.query)
    elif (yield from begins_too_long(document, model, longest)):
        raise _pair_too_long(longest, "documents")
    else:
        yield effort_of_text(len(ranking.query) + len(document))
        tokens = tokenize(document)
    if len(tokens) > longest:
        raise _pair_too_long(longest, "query" if truncates else "documents")
    if not tokens:
        raise RequestError("the query and a document are empty", param="documents", code="empty_input")
    check_ids(tokens, model.info.vocabulary, "documents")
    return tokens


def _pair_too_long(longest: int, param: str) -> RequestError:
    return RequestError(
        f"A document may have at most {longest} tokens together with the query. A longer one is cut if the request "
        "asks for it.",
        param=param,
        code="context_length_exceeded",
    )
