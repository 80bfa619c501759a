"""Log-probabilities in the shape of OpenAI's completions, which its chat has replaced by another."""

import codecs
from collections.abc import Iterable, Sequence

from engine import Alternative, TokenDetail
from gateway.apis.answers.shapes import LegacyLogprobs


class LegacyLogprobsEncoder:
    """Encodes the tokens of one choice, all at once or piece by piece: the offsets go on over the whole choice."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def encode(self, details: Iterable[TokenDetail]) -> LegacyLogprobs:
        """Return the tokens that follow those encoded before, as lists that run in parallel.

        `text_offset` is where a token begins in the choice's text, in characters. Where one begins inside a character,
        that is where the character does. A prompt's first token has neither probability nor alternatives.
        """
        tokens = list(details)
        return {
            "text_offset": [self._advance(token.piece) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "tokens": [token_text(token.piece) for token in tokens],
            "top_logprobs": [None if token.logprob is None else _alternatives(token) for token in tokens],
        }

    def _advance(self, piece: bytes) -> int:
        offset = self._offset
        self._offset += len(self._decoder.decode(piece))
        return offset


def token_text(piece: bytes) -> str:
    """Return a token as text: OpenAI's `bytes:\\xe2\\x80` where it is not whole characters."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def mean_logprob(details: Sequence[TokenDetail]) -> float:
    """Return the mean log-probability, by which texts of different lengths compare. Without tokens, the least."""
    known = [detail.logprob for detail in details if detail.logprob is not None]
    return sum(known) / len(known) if known else float("-inf")


def _alternatives(detail: TokenDetail) -> dict[str, float | None]:
    """Return the likeliest in a token's place, and the token itself. Of two that read the same, the first."""
    alternatives: dict[str, float | None] = {}
    places: tuple[Alternative | TokenDetail, ...] = (*detail.top, detail)
    for one in places:
        alternatives.setdefault(token_text(one.piece), one.logprob)
    return alternatives
