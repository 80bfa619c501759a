"""Tokens that a request may need, before the engine has counted any."""

from collections.abc import Sequence

from engine import EmbeddingRequest, GenerationRequest, Infill, PromptText

ASCII_CHARACTERS, OTHER_CHARACTERS = 4, 2
"""Characters that count as one token of a text that is ASCII, and of any other, until the engine has tokenised it. The
length of a text is known at once; its bytes, which would say more, take milliseconds to count for a large one."""


def generation_bound(
    request: GenerationRequest, context: int, prompt_tokens: Sequence[int] | None = None, *, shifts: bool = False
) -> int:
    """Return the tokens of all prompts, and of all choices at their greatest length.

    Args:
        request: the request.
        context: tokens of a slot.
        prompt_tokens: number of tokens of each prompt; None estimates them.
        shifts: whether a choice may exceed its slot.
    """
    prompts = [estimate(prompt) for prompt in request.prompts] if prompt_tokens is None else prompt_tokens
    longest = request.default_max_tokens if request.max_tokens is None else request.max_tokens
    if longest is not None and not shifts:
        longest = min(longest, context)
    choices = (max(0, context - prompt) if longest is None else longest for prompt in prompts)
    return sum(prompts) + request.n * sum(choices)


def embedding_bound(request: EmbeddingRequest) -> int:
    """Return the estimated tokens of all inputs, each with the query."""
    query = 0 if request.ranking is None else estimate(request.ranking.query)
    return sum(query + estimate(part) for part in request.inputs)


def estimate(prompt: str | PromptText | Infill | tuple[int, ...]) -> int:
    """Return the estimated number of tokens of a prompt; of token ids, the exact number."""
    match prompt:
        case str():
            return -(-len(prompt) // (ASCII_CHARACTERS if prompt.isascii() else OTHER_CHARACTERS))
        case PromptText(text):
            return estimate(text)
        case Infill(prefix, suffix):
            return estimate(prefix) + estimate(suffix)
    return len(prompt)
