"""Outcome of one request, as measured by its client."""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason for a failed request."""

    kind: str
    """Category, by which failures are counted."""
    words: str
    """Message of the server or of the operating system."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts that the server reported."""

    prompt: int
    """Tokens of the prompt."""
    completion: int
    """Tokens of the answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Measurements of one request. All times are in seconds of one clock."""

    begun: float
    """Time at which the request was sent over an open connection."""
    ended: float
    """Time at which the answer ended or failed."""
    arrivals: tuple[tuple[float, int], ...] = ()
    """Reads that contained text: time of the read, and number of its chunks with text."""
    usage: Usage | None = None
    """Token counts of the server; unset if it sent no usage."""
    failure: Failure | None = None
    """Reason for the failure; unset if the request succeeded."""

    @property
    def chunks(self) -> int:
        """Number of streamed chunks with text."""
        return sum(chunks for _, chunks in self.arrivals)

    @property
    def tokens(self) -> int | None:
        """Tokens of the answer: the server's count, else one token for each chunk. None if neither is known."""
        return self.usage.completion if self.usage else self.chunks or None

    @property
    def to_first_token(self) -> float | None:
        """Seconds from the request to its first text; unset without streamed text."""
        return self.arrivals[0][0] - self.begun if self.arrivals else None

    @property
    def read_gaps(self) -> list[float]:
        """Seconds between two reads that contained text, regardless of the amount of text."""
        return [later - earlier for (earlier, _), (later, _) in pairwise(self.arrivals)]

    @property
    def inter_token(self) -> list[float]:
        """Seconds per token, one value for each chunk: the gap before its read, divided by the tokens of the read.

        Tokens that the server or the network sent together thus share their gap: none of them counts as a gap of zero,
        and together they do not count as one token. If the server counted more tokens than chunks, each chunk is
        assumed to have the same number of tokens.
        """
        tokens_per_chunk = max(1.0, (self.tokens or 0) / (self.chunks or 1))
        return [
            gap / (chunks * tokens_per_chunk)
            for gap, (_, chunks) in zip(self.read_gaps, self.arrivals[1:], strict=True)
            for _ in range(chunks)
        ]
