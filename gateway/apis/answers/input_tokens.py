"""Answer of the endpoints that count the tokens of a prompt."""

from typing import Literal

from engine import Engine, TextPrompt
from gateway.apis.answers.shapes import Count, JsonObject


class InputTokens(JsonObject):
    """Number of tokens in the prompt that the model would read."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


async def count_tokens(engine: Engine, prompt: TextPrompt) -> InputTokens:
    """Return the token count of a rendered prompt, the same as in `usage`. Waits for the engine. Raises its errors."""
    (tokens,) = await engine.tokenize([prompt], special=True, begin=True)
    return {"object": "response.input_tokens", "input_tokens": len(tokens)}
