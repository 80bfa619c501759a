"""Handlers of the queries that need the vocabulary."""

from collections.abc import Callable, Iterator, Sequence

from engine.core.model import Model
from engine.errors import RequestError
from engine.events import TokenRun
from engine.prompt import text_of
from engine.protocol.messages import AnyAnswer, AnyQuery, Detokenize, Detokenized, Tokenize, Tokenized
from engine.worker.admission import check_ids
from engine.worker.long_texts import begins_too_long
from engine.worker.slices import Effort, Slices, effort_of_text

RUN = 2048
"""Tokens of one part of an answer. A part of so many is encoded and read in about a millisecond."""
MOST_TEXT = 2**22
"""Characters of all texts of one query. llama.cpp tokenises so many in seconds."""
MOST_TOKENS = 2**19
"""Tokens of one text of a query. Where a vocabulary lacks its characters, so many take llama.cpp tens of seconds."""


def answer_query(query: AnyQuery, model: Model, send: Callable[[AnyAnswer], None]) -> Slices[AnyAnswer]:
    """Return the last part of the answer to a query.

    Args:
        query: Query from the gateway.
        model: Model with the vocabulary.
        send: Sends each earlier part.

    Raises:
        RequestError: The query has no answer.
    """
    match query:
        case Tokenize():
            return (yield from _tokenize(query, model, send))
        case Detokenize():
            return (yield from _detokenize(query, model))
        case _:
            raise RuntimeError(f"no handler for {type(query).__name__}")


def _tokenize(query: Tokenize, model: Model, send: Callable[[AnyAnswer], None]) -> Slices[Tokenized]:
    if sum(len(text_of(text)) for text in query.texts) > MOST_TEXT:
        raise RequestError(f"the text has more than {MOST_TEXT} characters", param="content", code="invalid_value")
    last = Tokenized(TokenRun(0, ()))
    for index, text in enumerate(query.texts):
        if (yield from begins_too_long(text_of(text), model, MOST_TOKENS // 2)):
            raise RequestError(f"a text has more than {MOST_TOKENS} tokens", param="content", code="invalid_value")
        effort = effort_of_text(len(text_of(text)))
        yield Effort.QUERY if effort is Effort.TEXT else effort
        if isinstance(text, str):
            tokens = model.tokenize(text, special=query.special, begin=query.begin)
        else:
            tokens = model.tokenize_parts(text, begin=query.begin)
        for ids in _runs(tokens):
            yield Effort.ANSWER
            if last.tokens.ids:
                send(last)
            pieces = tuple(model.piece(token, special=True) for token in ids) if query.pieces else ()
            last = Tokenized(TokenRun(index, tuple(ids), pieces))
    return last


def _detokenize(query: Detokenize, model: Model) -> Slices[Detokenized]:
    pieces = []
    for ids in _runs(query.tokens):
        yield Effort.ANSWER
        check_ids(ids, model.info.vocabulary, "tokens")
        pieces += [model.piece(token, special=query.special) for token in ids]
    return Detokenized(b"".join(pieces))


def _runs(tokens: Sequence[int]) -> Iterator[Sequence[int]]:
    return (tokens[start : start + RUN] for start in range(0, len(tokens), RUN))
