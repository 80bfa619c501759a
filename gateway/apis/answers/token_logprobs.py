"""Log-probabilities in the format of OpenAI's chat, which Ollama has, too. OpenAI's completions have an older one."""

from collections.abc import Iterable, Iterator

from engine import Alternative, TokenDetail
from gateway.apis.answers.pieces import TOKENS_PER_PIECE, array
from gateway.apis.answers.shapes import ChosenLogprob, TokenLogprob

MIN_LOGPROB = -9999.0
"""OpenAI's value for a probability of 0, because JSON has no number for minus infinity."""


def token_logprobs(details: Iterable[TokenDetail]) -> list[ChosenLogprob]:
    """Return the log-probabilities of each token. The details must come from a request with `logprobs`."""
    return [_chosen(detail) for detail in details]


def token_logprobs_in_pieces(details: Iterable[TokenDetail]) -> Iterator[bytes]:
    """Yield the JSON of what `token_logprobs` returns in pieces."""
    return array(map(_chosen, details), TOKENS_PER_PIECE)


def _chosen(detail: TokenDetail) -> ChosenLogprob:
    return {**_token(detail), "top_logprobs": [_token(alternative) for alternative in detail.top]}


def _token(token: TokenDetail | Alternative) -> TokenLogprob:
    """Return one token. Invalid UTF-8 becomes U+FFFD in `token`; `bytes` is unchanged."""
    return {
        "token": token.piece.decode(errors="replace"),
        "logprob": MIN_LOGPROB if token.logprob is None else max(token.logprob, MIN_LOGPROB),
        "bytes": list(token.piece),
    }
