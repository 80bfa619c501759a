"""The answer of the routes that count the tokens of a prompt."""

from typing import Literal

from gateway.apis.answers.shapes import Answer, Count


class InputTokens(Answer):
    """The number of tokens that the model would read."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


def input_tokens(count: int) -> InputTokens:
    """Return the answer for a prompt of this many tokens."""
    return {"object": "response.input_tokens", "input_tokens": count}
