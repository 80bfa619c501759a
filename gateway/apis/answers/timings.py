"""Times that the model spent on a request, with llama-server's field names."""

from collections.abc import Iterable, Sequence

from engine import Finished, FinishReason, Text
from gateway.apis.answers.shapes import PromptProgress, Timings


def timings(prompt_tokens: Sequence[int], outcomes: Iterable[Finished]) -> Timings:
    """Return the times of the model's passes for the request, summed over its choices as if they ran one by one.

    `prompt_n` counts the computed prompt tokens and `cache_n` the cached ones.

    Args:
        prompt_tokens: token count of each prompt.
        outcomes: the final event of every choice, in any order.
    """
    ends = list(outcomes)
    choices_per_prompt = len(ends) // len(prompt_tokens)
    cached = sum(end.cached for end in ends)
    prompt, prompt_seconds = sum(prompt_tokens) * choices_per_prompt - cached, sum(end.prompt_seconds for end in ends)
    predicted, predicted_seconds = sum(end.tokens for end in ends), sum(end.decode_seconds for end in ends)
    steps = sum(max(0, end.tokens - 1) for end in ends)  # the last step of the prompt draws the first token
    return {
        "cache_n": cached,
        "prompt_n": prompt,
        "prompt_ms": prompt_seconds * 1000,
        "prompt_per_token_ms": _ratio(prompt_seconds * 1000, prompt),
        "prompt_per_second": _ratio(prompt, prompt_seconds),
        "predicted_n": predicted,
        "predicted_ms": predicted_seconds * 1000,
        "predicted_per_token_ms": _ratio(predicted_seconds * 1000, steps),
        "predicted_per_second": _ratio(steps, predicted_seconds),
        "draft_n": sum(end.drafted for end in ends),
        "draft_n_accepted": sum(end.accepted for end in ends),
        "truncated": any(end.discarded for end in ends),
    }


class RunningTimings:
    """Times of one choice of a stream until now. The request asks the engine for `progress` and `token_ids`."""

    def __init__(self, *, echoed: int = 0) -> None:
        """Begin without times. `echoed` counts the tokens of a prompt that the output begins with."""
        self._predicted = -echoed
        self._cached = self._processed = 0
        self._prompt_seconds = 0.0

    def read(self, event: Text) -> PromptProgress | None:
        """Return the progress of the choice's prompt, if the event is about the prompt."""
        if event.progress is None:
            return None
        progress = event.progress
        self._cached, self._processed, self._prompt_seconds = progress.cached, progress.processed, progress.seconds
        return {
            "total": progress.total,
            "cache": progress.cached,
            "processed": progress.processed,
            "time_ms": progress.seconds * 1000,
        }

    def add(self, tokens: int) -> None:
        """Count tokens of the output."""
        self._predicted += tokens

    def count(self, event: Text | Finished) -> None:
        """Count the tokens of an event. The last event has the number of all, also of those without text."""
        if isinstance(event, Finished):
            self._predicted = event.tokens
        else:
            self.add(len(event.details))

    @property
    def predicted(self) -> int:
        """Number of generated tokens until now."""
        return max(0, self._predicted)

    def timings(self, decode_seconds: float) -> Timings:
        """Return the times after decode steps of that duration."""
        costs = (self._prompt_seconds, decode_seconds)
        return timings(
            [self._processed], [Finished(0, "", FinishReason.LENGTH, self.predicted, self._cached, (), None, *costs)]
        )


def _ratio(amount: float, per: float) -> float:
    """Return the ratio, or 0 if the divisor is 0."""
    return amount / per if per > 0 else 0.0
