"""Log-probabilities as OpenAI's chat clients read them."""

from collections.abc import Iterable
from typing import Any

from engine import Alternative, TokenDetail

LEAST = -9999.0
"""OpenAI: stands for a probability of nothing, of which JSON has no logarithm."""


def chat_logprobs(details: Iterable[TokenDetail]) -> dict[str, Any]:
    """The `logprobs` of a choice or of a part of it. Takes details that were asked for with `logprobs`."""
    return {"content": [_token(detail) for detail in details], "refusal": None}


def _token(detail: TokenDetail) -> dict[str, Any]:
    return {
        **_entry(detail.piece, detail.logprob),
        "top_logprobs": [_alternative(alternative) for alternative in detail.top],
    }


def _alternative(alternative: Alternative) -> dict[str, Any]:
    return _entry(alternative.piece, alternative.logprob)


def _entry(piece: bytes, logprob: float | None) -> dict[str, Any]:
    """Part of a character is shown as U+FFFD; `bytes` has it as it is."""
    return {
        "token": piece.decode(errors="replace"),
        "logprob": LEAST if logprob is None else max(logprob, LEAST),
        "bytes": list(piece),
    }
