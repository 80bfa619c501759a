"""Answers of `/tokenize` and `/detokenize`."""

import orjson

from engine import TokenRun
from gateway.apis.answers.shapes import Count, JsonObject


class TokenPiece(JsonObject):
    """A token and its text, or its bytes if they are not whole characters."""

    id: Count
    piece: str | list[Count]


class Tokens(JsonObject):
    """The tokens of a text. `count` and `max_model_len`, the size of a slot's context, are vLLM's."""

    tokens: list[Count] | list[TokenPiece]
    count: Count
    max_model_len: Count


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
        self._count = 0

    def add(self, tokens: TokenRun) -> None:
        """Append the next tokens."""
        if tokens.ids:
            comma = b"," if len(self._parts) > 1 else b""
            self._parts.append(comma + orjson.dumps(self._items(tokens))[1:-1])
            self._count += len(tokens.ids)

    def parts(self, context: int) -> list[bytes]:
        """Return the answer, `Tokens` as JSON, in parts. `context` is the size of a slot's context in tokens."""
        return [*self._parts, b'],"count":%d,"max_model_len":%d}' % (self._count, context)]

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
