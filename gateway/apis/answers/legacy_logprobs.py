"""Log-probabilities in the format of OpenAI's completions. OpenAI's chat has a newer format."""

import codecs
from collections.abc import Iterator, Sequence

from engine import Alternative, TokenDetail
from gateway.apis.answers.pieces import HOLE, TOKENS_PER_PIECE, array, filled
from gateway.apis.answers.shapes import LegacyLogprobs

_LISTS: LegacyLogprobs = {"text_offset": HOLE, "token_logprobs": HOLE, "tokens": HOLE, "top_logprobs": HOLE}


class LegacyLogprobsEncoder:
    """Encodes the tokens of one choice, at once or incrementally. The offsets continue over the whole choice."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def encode(self, details: Sequence[TokenDetail]) -> Iterator[bytes]:
        """Yield the JSON of the next tokens, parallel lists, in pieces.

        `text_offset` is the position of a token in the choice's text, in characters. For a token that begins inside a
        character, it is the position of the character. A prompt's first token has no probability and no alternatives.
        """
        return filled(
            _LISTS,
            array((self._advance(detail.piece) for detail in details), TOKENS_PER_PIECE),
            array((detail.logprob for detail in details), TOKENS_PER_PIECE),
            array((token_text(detail.piece) for detail in details), TOKENS_PER_PIECE),
            array((None if detail.logprob is None else _alternatives(detail) for detail in details), TOKENS_PER_PIECE),
        )

    def _advance(self, piece: bytes) -> int:
        offset = self._offset
        self._offset += len(self._decoder.decode(piece))
        return offset


def token_text(piece: bytes) -> str:
    """Return a token as text, or OpenAI's `bytes:\\xe2\\x80` if it is not valid UTF-8."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def mean_logprob(details: Sequence[TokenDetail]) -> float:
    """Return the mean log-probability, to compare texts of different lengths. It is minus infinity without tokens."""
    known = [detail.logprob for detail in details if detail.logprob is not None]
    return sum(known) / len(known) if known else float("-inf")


def _alternatives(detail: TokenDetail) -> dict[str, float | None]:
    """Return the likeliest alternatives and the token itself. Of two with the same text, the first one counts.

    The token has its text in the choice everywhere, which may lack a space or a control token's name.
    """
    alternatives: dict[str, float | None] = {}
    places: tuple[Alternative | TokenDetail, ...] = (*detail.top, detail)
    for one in places:
        alternatives.setdefault(token_text(detail.piece if one.id == detail.id else one.piece), one.logprob)
    return alternatives
