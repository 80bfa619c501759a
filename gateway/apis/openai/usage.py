"""Token counts of a request, in the format of OpenAI's completions and chat."""

from collections.abc import Iterable, Sequence

from engine import Finished
from gateway.apis.answers.shapes import Usage, UsageUntilNow


def usage(prompt_tokens: Sequence[int], outcomes: Iterable[Finished]) -> Usage:
    """Return the token counts of a request. Each prompt counts once, and every choice counts, returned or not.

    The cached tokens of a prompt are those that its first choice found in the cache. Rejected draft tokens are not
    completion tokens.

    Args:
        prompt_tokens: token count of each prompt.
        outcomes: the final event of every choice, in any order.
    """
    ends = sorted(outcomes, key=lambda end: end.choice)
    choices_per_prompt = len(ends) // len(prompt_tokens)
    prompt, completion = sum(prompt_tokens), sum(end.tokens for end in ends)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(end.cached for end in ends[::choices_per_prompt])},
        "completion_tokens_details": {
            "reasoning_tokens": sum(end.reasoning for end in ends),
            "accepted_prediction_tokens": sum(end.accepted for end in ends),
            "rejected_prediction_tokens": sum(end.drafted - end.accepted for end in ends),
        },
    }


def usage_until_now(prompt_tokens: int, completion_tokens: int) -> UsageUntilNow:
    """Return the token counts of one choice of a stream until now."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
