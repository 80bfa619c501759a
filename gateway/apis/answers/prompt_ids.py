"""Token ids of prompts, for requests with `return_token_ids`."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from engine import Engine, Infill, Prompt, PromptText, TokenDetail

PromptIds: TypeAlias = tuple[list[int] | None, ...]
"""Token ids of each prompt in an answer. None for an infill prompt."""


async def prompt_ids(engine: Engine, prompts: Sequence[Prompt]) -> PromptIds:
    """Return the token ids of each prompt, or None for an infill prompt.

    Waits for the engine. Raises the errors of `Engine.tokenize`.
    """
    texts = [prompt for prompt in prompts if isinstance(prompt, str | PromptText)]
    tokens = iter(await engine.tokenize(texts, special=True, begin=True) if texts else ())
    return tuple(_ids(prompt, tokens) for prompt in prompts)


def _ids(prompt: Prompt, tokens: Iterator[tuple[TokenDetail, ...]]) -> list[int] | None:
    match prompt:
        case str() | PromptText():
            return [token.id for token in next(tokens)]
        case Infill():
            return None
    return list(prompt)
