"""Metrics of the outcomes of one stage."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.bench.outcome import Failure, Outcome


@dataclass(frozen=True)
class Percentiles:
    """Distribution of measured times, in seconds. Percentiles are interpolated linearly."""

    count: int
    """Number of times."""
    mean: float
    """Arithmetic mean."""
    p50: float
    """Median."""
    p90: float
    """90th percentile."""
    p99: float
    """99th percentile."""
    max: float
    """Longest time."""


@dataclass(frozen=True)
class FailureCount:
    """Number of requests that failed for the same reason."""

    kind: str
    """Category of the failure."""
    words: str
    """Message of the server or of the operating system."""
    count: int
    """Number of requests."""


@dataclass(frozen=True)
class Summary:
    """Metrics of one stage. Only complete answers count, except in `requests`, `seconds` and `failures`.

    Times are in seconds. A metric is None if it could not be measured. Without streams, this applies to all metrics of
    tokens, except for the totals of a server that reports its usage.
    """

    clients: int
    """Number of concurrent clients."""
    requests: int
    """Requests that ended."""
    succeeded: int
    """Requests with a complete answer."""
    seconds: float
    """Time from the first request sent to the end of the last answer."""
    prompt_tokens: int | None
    """Tokens of all prompts, by the server's usage."""
    tokens: int | None
    """Tokens of all answers."""
    counted_by: Literal["usage", "chunks"]
    """Source of `tokens`: the server's usage, or `chunks` if at least one answer had no usage."""
    tokens_per_read: float | None
    """Mean tokens of one read. Above 1, `inter_token` is a share of the gap between two reads."""
    tokens_per_second: float | None
    """Throughput of all clients together."""
    time_to_first_token: Percentiles | None
    """Time from a request to its first text."""
    inter_token: Percentiles | None
    """Time per token after the first read."""
    read_gap: Percentiles | None
    """Time between two reads that contained text, not divided by tokens."""
    end_to_end: Percentiles | None
    """Time from a request to the end of its answer."""
    failures: list[FailureCount]
    """Failed requests, counted by reason; the most frequent first."""


def summarise(clients: int, outcomes: Sequence[Outcome]) -> Summary:
    """Return the metrics of one stage.

    Args:
        clients: number of concurrent clients.
        outcomes: one for each request that ended; at least one.
    """
    good = [outcome for outcome in outcomes if outcome.failure is None]
    seconds = max(outcome.ended for outcome in outcomes) - min(outcome.begun for outcome in outcomes)
    tokens = _total(outcome.tokens for outcome in good)
    reads = sum(len(outcome.arrivals) for outcome in good)
    return Summary(
        clients=clients,
        requests=len(outcomes),
        succeeded=len(good),
        seconds=seconds,
        prompt_tokens=_total(outcome.usage.prompt if outcome.usage else None for outcome in good),
        tokens=tokens,
        counted_by="usage" if all(outcome.usage for outcome in good) else "chunks",
        tokens_per_read=tokens / reads if tokens and reads else None,
        tokens_per_second=tokens / seconds if tokens and seconds else None,
        time_to_first_token=percentiles([time for one in good if (time := one.to_first_token) is not None]),
        inter_token=percentiles([time for outcome in good for time in outcome.inter_token]),
        read_gap=percentiles([gap for outcome in good for gap in outcome.read_gaps]),
        end_to_end=percentiles([outcome.ended - outcome.begun for outcome in good]),
        failures=_count(outcome.failure for outcome in outcomes if outcome.failure),
    )


def percentiles(times: list[float]) -> Percentiles | None:
    """Return the percentiles of times; None for an empty list."""
    if not times:
        return None
    cuts = statistics.quantiles(times if len(times) > 1 else times * 2, n=100, method="inclusive")
    return Percentiles(len(times), statistics.fmean(times), cuts[49], cuts[89], cuts[98], max(times))


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None if the counts are empty or one is unknown."""
    known = list(counts)
    return sum(filter(None, known)) if known and None not in known else None


def _count(failures: Iterable[Failure]) -> list[FailureCount]:
    counts = Counter(failures).most_common()
    return [FailureCount(failure.kind, failure.words, count) for failure, count in counts]
