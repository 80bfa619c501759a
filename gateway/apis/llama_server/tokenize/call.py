"""Requests of `/tokenize` and `/detokenize` as their handlers need them."""

from dataclasses import dataclass

from gateway.apis.llama_server.tokenize.request import DetokenizeBody, TokenizeBody


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeCall:
    """A `/tokenize` request."""

    model: str | None
    """Name of the model."""
    text: str
    """Text to tokenize."""
    add_special: bool
    """True to add the tokens that begin a text."""
    parse_special: bool
    """True to read the names of control tokens as these tokens."""
    with_pieces: bool
    """True to add the text of each token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetokenizeCall:
    """A `/detokenize` request."""

    model: str | None
    """Name of the model."""
    tokens: tuple[int, ...]
    """Token ids."""


def prepare_tokenize(body: TokenizeBody) -> TokenizeCall:
    """Return the request in a body."""
    return TokenizeCall(
        model=body.model,
        text=body.text,
        add_special=body.begins,
        parse_special=body.parse_special,
        with_pieces=body.with_pieces,
    )


def prepare_detokenize(body: DetokenizeBody) -> DetokenizeCall:
    """Return the request in a body."""
    return DetokenizeCall(model=body.model, tokens=tuple(body.tokens))
