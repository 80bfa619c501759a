"""Log-probabilities in the format of OpenAI's chat."""

from collections.abc import Iterable, Iterator

from engine import Alternative, TokenDetail
from gateway.apis.answers.pieces import HOLE, TOKENS_PER_PIECE, array, filled
from gateway.apis.openai.chat.answer import ChatLogprobs, ChosenLogprob, TokenLogprob

MIN_LOGPROB = -9999.0
"""OpenAI's value for a probability of 0, because JSON has no number for minus infinity."""


def chat_logprobs(details: Iterable[TokenDetail]) -> Iterator[bytes]:
    """Yield the JSON of the `logprobs` of a choice, or of one chunk of it, in pieces."""
    whole: ChatLogprobs = {"content": HOLE, "refusal": None}
    return filled(whole, array(map(_chosen, details), TOKENS_PER_PIECE))


def token_logprobs(details: Iterable[TokenDetail]) -> list[ChosenLogprob]:
    """Return the log-probabilities of each token. The details must come from a request with `logprobs`."""
    return [_chosen(detail) for detail in details]


def _chosen(detail: TokenDetail) -> ChosenLogprob:
    return {**_token(detail), "top_logprobs": [_token(alternative) for alternative in detail.top]}


def _token(token: TokenDetail | Alternative) -> TokenLogprob:
    """Return one token. Invalid UTF-8 becomes U+FFFD in `token`; `bytes` is unchanged."""
    return {
        "token": token.piece.decode(errors="replace"),
        "logprob": MIN_LOGPROB if token.logprob is None else max(token.logprob, MIN_LOGPROB),
        "bytes": list(token.piece),
    }
