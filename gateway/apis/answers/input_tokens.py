"""The answer of the routes that count the tokens of a prompt."""

from typing import Literal

from engine import Engine
from gateway.apis.answers.shapes import Count, JsonObject


class InputTokens(JsonObject):
    """The number of tokens that the model would read."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


async def count_tokens(engine: Engine, prompt: str) -> InputTokens:
    """Count the tokens of a rendered prompt, as `usage` does. Waits for the engine, and raises as it does."""
    (tokens,) = await engine.tokenize([prompt], special=True, begin=True)
    return {"object": "response.input_tokens", "input_tokens": len(tokens)}
