"""The count of a prompt's tokens, with nothing generated."""

from typing import Literal

from engine import Engine
from gateway.apis.answers.shapes import Answer, Count


class InputTokens(Answer):
    """How many tokens the model would read."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


async def input_tokens(engine: Engine, prompt: str) -> InputTokens:
    """Count the tokens of a rendered prompt, as `usage` does. Waits for the engine."""
    (tokens,) = await engine.tokenize([prompt], special=True, begin=True)
    return {"object": "response.input_tokens", "input_tokens": len(tokens)}
