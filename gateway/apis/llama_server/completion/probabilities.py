"""Probabilities of tokens in llama-server's format."""

import math
from collections.abc import Iterator, Sequence
from typing import cast

from engine import Alternative, TokenDetail
from gateway.apis.answers.pieces import array
from gateway.apis.llama_server.completion.answer import ChosenProb, TokenProb

_ENTRIES_PER_PIECE = 1300
"""Tokens and alternatives in one piece of an answer. To encode them takes a millisecond."""


def probabilities_in_pieces(details: Sequence[TokenDetail], *, alternatives: int, sampled: bool) -> Iterator[bytes]:
    """Yield the JSON of the probabilities of all tokens of a text in pieces, as `probabilities` returns each.

    `alternatives` is the maximum for each token.
    """
    tokens = max(1, _ENTRIES_PER_PIECE // (1 + alternatives))
    return array((probabilities(one, sampled=sampled) for one in details), tokens)


def probabilities(detail: TokenDetail, *, sampled: bool) -> ChosenProb:
    """Return a token with the likeliest ones at its position: log-probabilities, or probabilities after the samplers.

    After the samplers, tokens that cannot be drawn are left out.
    """
    chosen = cast("ChosenProb", _prob(detail, sampled=sampled))
    top = [_prob(one, sampled=sampled) for one in detail.top]
    if sampled:
        chosen["top_probs"] = [one for one in top if one["prob"] > 0]
    else:
        chosen["top_logprobs"] = top
    return chosen


def _prob(token: TokenDetail | Alternative, *, sampled: bool) -> TokenProb:
    prob: TokenProb = {"id": token.id, "token": token.piece.decode(errors="ignore"), "bytes": list(token.piece)}
    if sampled:
        prob["prob"] = min(1.0, math.exp(token.logprob or 0.0))
    else:
        prob["logprob"] = token.logprob or 0.0
    return prob
