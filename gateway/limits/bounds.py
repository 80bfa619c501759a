"""Tokens that a request may need, before the engine has counted any."""

from collections.abc import Sequence

from engine import EmbeddingRequest, GenerationRequest, Infill, PromptText

BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 that are taken for one token of a text, until the engine has tokenised it."""


def generation_bound(request: GenerationRequest, context: int, prompt_tokens: Sequence[int] | None = None) -> int:
    """Return the tokens of all prompts, and of all choices at their greatest length.

    Args:
        request: the request.
        context: tokens of a slot, which no choice exceeds.
        prompt_tokens: number of tokens of each prompt; None estimates them.
    """
    prompts = [estimate(prompt) for prompt in request.prompts] if prompt_tokens is None else prompt_tokens
    longest = request.default_max_tokens if request.max_tokens is None else request.max_tokens
    choices = (max(0, context - prompt) if longest is None else min(longest, context) for prompt in prompts)
    return sum(prompts) + request.n * sum(choices)


def embedding_bound(request: EmbeddingRequest) -> int:
    """Return the estimated tokens of all inputs."""
    return sum(estimate(part) for part in request.inputs)


def estimate(prompt: str | PromptText | Infill | tuple[int, ...]) -> int:
    """Return the estimated number of tokens of a prompt; of token ids, the exact number."""
    match prompt:
        case str():
            return -(-_bytes_of(prompt) // BYTES_PER_TOKEN)
        case PromptText(text):
            return estimate(text)
        case Infill(prefix, suffix):
            return estimate(prefix) + estimate(suffix)
    return len(prompt)


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
