"""Handlers of the queries that need the vocabulary."""

from collections.abc import Callable

from engine.core.model import Model
from engine.events import TokenDetail
from engine.protocol.messages import AnyAnswer, AnyQuery, Detokenize, Detokenized, Tokenize, Tokenized
from engine.worker.admission import check_ids


def answer_query(query: AnyQuery, model: Model, *, wanted: Callable[[], bool]) -> AnyAnswer:
    """Return the answer to a query. May take long.

    Args:
        query: Query from the gateway.
        model: Model with the vocabulary.
        wanted: Called between texts; returns False after a cancel. The answer to a cancelled query may be incomplete.

    Raises:
        RequestError: The query has no answer.
    """
    match query:
        case Tokenize():
            return _tokenize(query, model, wanted)
        case Detokenize():
            return _detokenize(query, model)
        case _:
            raise RuntimeError(f"no handler for {type(query).__name__}")


def _tokenize(query: Tokenize, model: Model, wanted: Callable[[], bool]) -> Tokenized:
    texts = []
    for text in query.texts:
        if not wanted():
            break
        if isinstance(text, str):
            tokens = model.tokenize(text, special=query.special, begin=query.begin)
        else:
            tokens = model.tokenize_parts(text, begin=query.begin)
        texts.append(tuple(TokenDetail(token, model.piece(token, special=True)) for token in tokens))
    return Tokenized(tuple(texts))


def _detokenize(query: Detokenize, model: Model) -> Detokenized:
    check_ids(query.tokens, model.info.vocabulary, "tokens")
    pieces = (model.piece(token, special=query.special) for token in query.tokens)
    return Detokenized(b"".join(pieces))
