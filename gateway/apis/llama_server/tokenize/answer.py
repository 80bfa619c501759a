"""Answers of `/tokenize` and `/detokenize`."""

import orjson

from engine import TokenRun
from gateway.apis.answers.shapes import Count, JsonObject


class TokenPiece(JsonObject):
    """A token and its text, or its bytes if they are not whole characters."""

    id: Count
    piece: str | list[Count]


class Tokens(JsonObject):
    """The tokens of a text."""

    tokens: list[Count] | list[TokenPiece]


class DetokenizedText(JsonObject):
    """The text of the tokens. `prompt` is vLLM's name for `content`."""

    content: str
    prompt: str


class TokensEncoder:
    """Encodes the tokens of a text in parts, as they arrive, so that a long answer never holds the event loop."""

    def __init__(self, *, with_pieces: bool) -> None:
        """Start without tokens. The answer has ids; with `with_pieces`, their texts too."""
        self._with_pieces = with_pieces
        self._parts = [b'{"tokens":[']

    def add(self, tokens: TokenRun) -> None:
        """Append the next tokens."""
        if tokens.ids:
            comma = b"," if len(self._parts) > 1 else b""
            self._parts.append(comma + orjson.dumps(self._items(tokens))[1:-1])

    def parts(self) -> list[bytes]:
        """Return the answer, `Tokens` as JSON, in parts."""
        return [*self._parts, b"]}"]

    def _items(self, tokens: TokenRun) -> list[Count] | list[TokenPiece]:
        if not self._with_pieces:
            return list(tokens.ids)
        pairs = zip(tokens.ids, tokens.pieces, strict=True)
        return [TokenPiece(id=token, piece=_piece(piece)) for token, piece in pairs]


def content(text: bytes) -> DetokenizedText:
    """Return the text of tokens. Invalid UTF-8 becomes U+FFFD."""
    decoded = text.decode(errors="replace")
    return {"content": decoded, "prompt": decoded}


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
