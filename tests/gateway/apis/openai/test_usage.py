"""Token counts of a request with several prompts and choices."""

from engine import Finished, FinishReason
from gateway.apis.openai.usage import usage


def end(choice: int, cached: int) -> Finished:
    return Finished(choice, "", FinishReason.STOP, 10, cached, drafted=5, accepted=3, reasoning=2)


def test_each_prompt_counts_once_and_every_choice_in_any_order_of_their_ends() -> None:
    ends = [end(choice, cached) for choice, cached in ((3, 100), (0, 1), (1, 200), (2, 4))]
    assert usage((6, 7), ends) == {
        "prompt_tokens": 13,
        "completion_tokens": 40,
        "total_tokens": 53,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {
            "reasoning_tokens": 8,
            "accepted_prediction_tokens": 12,
            "rejected_prediction_tokens": 8,
        },
    }
