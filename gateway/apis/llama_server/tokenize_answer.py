"""Answers of `/tokenize` and `/detokenize`."""

from collections.abc import Sequence

from engine import TokenDetail
from gateway.apis.answers.shapes import Count, JsonObject


class TokenPiece(JsonObject):
    """A token and its text, or its bytes if they are not whole characters."""

    id: Count
    piece: str | list[Count]


class Tokens(JsonObject):
    """The tokens of a text."""

    tokens: list[Count] | list[TokenPiece]


class DetokenizedText(JsonObject):
    """The text of the tokens."""

    content: str


def tokens(details: Sequence[TokenDetail], *, with_pieces: bool) -> Tokens:
    """Return the ids of tokens; with `with_pieces`, their texts too."""
    if not with_pieces:
        return {"tokens": [token.id for token in details]}
    pieces: list[TokenPiece] = [{"id": token.id, "piece": _piece(token.piece)} for token in details]
    return {"tokens": pieces}


def content(text: bytes) -> DetokenizedText:
    """Return the text of tokens. Invalid UTF-8 becomes U+FFFD."""
    return {"content": text.decode(errors="replace")}


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
