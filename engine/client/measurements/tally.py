"""Count of the tokens of one request, and of the time between them, from its events."""

from collections.abc import Sequence

from engine.client.measurements.histogram import Histogram
from engine.events import Embedded, Finished, FinishReason, Text
from engine.request import GenerationRequest, Request


class Tally:
    """Adds up the parts of a request that have ended, also those that end while a cancel is on its way."""

    def __init__(self, request: Request, gaps: Histogram) -> None:
        """Create an empty tally. The times between tokens are added to `gaps`."""
        self._request = request
        self._per_prompt = request.n if isinstance(request, GenerationRequest) else 1
        self._streams = isinstance(request, GenerationRequest) and request.stream
        self._gaps = gaps
        self.reset()

    def reset(self) -> None:
        """Forget all events, so that the request can be sent again."""
        self.first_token_at: float | None = None
        """Time of the first token; unset before."""
        self.reasons: dict[int, FinishReason] = {}
        """Finish reason of each choice that has ended."""
        self.ended = 0
        """Number of ended parts."""
        self.completion_tokens = 0
        """Number of generated tokens of the ended choices."""
        self.longest_choice = 0
        """Number of these of the longest choice."""
        self.cached_tokens = 0
        """Number of reused prompt tokens of the ended choices: of each prompt those of its first choice."""
        self.drafted = 0
        """Number of computed draft tokens."""
        self.accepted = 0
        """Number of accepted draft tokens."""
        self.prompt_seconds = 0.0
        """Duration of the prefill steps of the ended choices."""
        self.decode_seconds = 0.0
        """Duration of their decode steps."""
        self._read: set[int] = set()
        self._text_at: dict[int, float] = {}

    def read_tokens(self, prompt_tokens: Sequence[int]) -> int:
        """Return the number of tokens of the prompts that have an ended part; each prompt counts once."""
        return sum(prompt_tokens[prompt] for prompt in self._read)

    def begin_token(self, now: float) -> None:
        """Record the first token."""
        self.first_token_at = now

    def time_text(self, event: Text | Finished, now: float) -> None:
        """Add the time since the last text of the same choice of a stream."""
        if not self._streams:
            return
        choice = event.choice
        if (last := self._text_at.get(choice)) is not None:
            self._gaps.add(now - last)
        self._text_at[choice] = now

    def end_part(self, event: Finished | Embedded, now: float) -> None:
        """Add a part that has ended."""
        self.ended += 1
        if isinstance(event, Finished):
            self._end_choice(event, now)
        else:
            self._read.add(event.input)

    def _end_choice(self, event: Finished, now: float) -> None:
        """Add a choice. Without a stream, the times between its tokens count as equal."""
        prompt, choice = divmod(event.choice, self._per_prompt)
        self._read.add(prompt)
        self.reasons[event.choice] = event.reason
        self.completion_tokens += event.tokens
        self.longest_choice = max(self.longest_choice, event.tokens)
        self.cached_tokens += 0 if choice else event.cached
        self.drafted += event.drafted
        self.accepted += event.accepted
        self.prompt_seconds += event.prompt_seconds
        self.decode_seconds += event.decode_seconds
        if self._streams:
            self.time_text(event, now)
        elif event.tokens > 1:
            alone = self._request.parts == 1 and self.first_token_at is not None
            seconds = now - (self.first_token_at or now) if alone else event.decode_seconds
            self._gaps.add(seconds / (event.tokens - 1), event.tokens - 1)
