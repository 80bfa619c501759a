"""How long a request took the model, as llama-server tells it."""

from collections.abc import Iterable, Sequence
from typing import Any

from engine import Finished


def timings(prompt_tokens: Sequence[int], outcomes: Iterable[Finished]) -> dict[str, Any]:
    """Times are those of the passes that worked for the request, its choices added up as if they had run in turn.

    `prompt_n` counts the prompt tokens that were computed, `cache_n` those that were not.

    Args:
        prompt_tokens: tokens of each prompt.
        outcomes: the end of every choice, in any order.
    """
    ends = list(outcomes)
    choices_per_prompt = len(ends) // len(prompt_tokens)
    cached = sum(end.cached for end in ends)
    return {
        "cache_n": cached,
        **_rates("prompt", sum(prompt_tokens) * choices_per_prompt - cached, sum(end.prompt_seconds for end in ends)),
        **_rates("predicted", sum(end.tokens for end in ends), sum(end.decode_seconds for end in ends)),
        "draft_n": sum(end.drafted for end in ends),
        "draft_n_accepted": sum(end.accepted for end in ends),
    }


def _rates(name: str, tokens: int, seconds: float) -> dict[str, Any]:
    """A rate of nothing is 0."""
    return {
        f"{name}_n": tokens,
        f"{name}_ms": seconds * 1000,
        f"{name}_per_token_ms": seconds * 1000 / tokens if tokens else 0.0,
        f"{name}_per_second": tokens / seconds if seconds > 0 else 0.0,
    }
