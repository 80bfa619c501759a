"""Answer of the endpoints that count the tokens of a prompt."""

from collections.abc import Callable
from typing import Literal

from engine import Engine, TextPrompt, TokenRun
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.serving.field_names import naming_text


class InputTokens(JsonObject):
    """Number of tokens in the prompt that the model would read."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


async def count_tokens(
    engine: Engine, prompt: TextPrompt, client: str, field: str, sent: Callable[[], None] = lambda: None
) -> int:
    """Return the token count of a rendered prompt, the same as in `usage`.

    Waits for the engine, where clients take turns, and calls `sent` once it has the prompt. Raises the errors of
    `Engine.tokenize`, which name `field`.
    """
    counts: list[int] = []

    def take(tokens: TokenRun) -> None:
        counts.append(len(tokens.ids))

    with naming_text(field):
        await engine.tokenize([prompt], special=True, begin=True, take=take, client=client, sent=sent)
    return sum(counts)
