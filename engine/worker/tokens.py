"""Questions about a model's vocabulary, answered."""

from collections.abc import Callable

from engine.core.model import Model
from engine.events import TokenDetail
from engine.protocol import wire
from engine.worker.admission import check_ids


def tokenize(question: wire.Tokenize, model: Model, *, wanted: Callable[[], bool]) -> wire.Tokenized | None:
    """The tokens of every text; None once nobody wants them any more, which is asked before each. May take long."""
    texts = []
    for text in question.texts:
        if not wanted():
            return None
        tokens = model.tokenize(text, special=question.special, begin=question.begin)
        texts.append(tuple(TokenDetail(token, model.piece(token, special=True)) for token in tokens))
    return wire.Tokenized(question.ticket, tuple(texts))


def detokenize(question: wire.Detokenize, model: Model) -> wire.Detokenized:
    """The bytes of the tokens. Raises `RequestError` for an id the model does not have."""
    check_ids(question.tokens, model.info.vocabulary, "tokens")
    pieces = (model.piece(token, special=question.special) for token in question.tokens)
    return wire.Detokenized(question.ticket, b"".join(pieces))
