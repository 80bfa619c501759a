"""Token ids of prompts, for requests with `return_token_ids`."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from engine import Engine, Infill, Prompt, PromptText, TokenRun
from gateway.serving.field_names import naming_text

PromptIds: TypeAlias = tuple[list[int] | None, ...]
"""Token ids of each prompt in an answer. None for an infill prompt."""


async def prompt_ids(engine: Engine, prompts: Sequence[Prompt], client: str, field: str = "prompt") -> PromptIds:
    """Return the token ids of each prompt, or None for an infill prompt.

    Waits for the engine, where clients take turns. Raises the errors of `Engine.tokenize`, which name `field`.
    """
    texts = [prompt for prompt in prompts if isinstance(prompt, str | PromptText)]
    found: list[list[int]] = [[] for _ in texts]

    def take(tokens: TokenRun) -> None:
        found[tokens.text].extend(tokens.ids)

    if texts:
        with naming_text(field):
            await engine.tokenize(texts, special=True, begin=True, take=take, client=client)
    of_texts = iter(found)
    return tuple(_ids(prompt, of_texts) for prompt in prompts)


def _ids(prompt: Prompt, of_texts: Iterator[list[int]]) -> list[int] | None:
    match prompt:
        case str() | PromptText():
            return next(of_texts)
        case Infill():
            return None
    return list(prompt)
