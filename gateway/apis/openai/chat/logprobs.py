"""Log-probabilities in the format of OpenAI's chat."""

from collections.abc import Iterable

from engine import Alternative, TokenDetail
from gateway.apis.openai.chat.answer import ChatLogprobs, ChosenLogprob, TokenLogprob

MIN_LOGPROB = -9999.0
"""OpenAI's value for a probability of 0, because JSON has no number for minus infinity."""


def chat_logprobs(details: Iterable[TokenDetail]) -> ChatLogprobs:
    """Return the `logprobs` of a choice or of one chunk of it."""
    return {"content": token_logprobs(details), "refusal": None}


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
