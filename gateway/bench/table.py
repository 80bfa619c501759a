"""Metrics as a plain-text table with notes."""

from collections import defaultdict
from collections.abc import Iterator

from gateway.bench.arguments import Arguments
from gateway.bench.summary import Percentiles, Summary

_WIDTH = 9
_NAMES = ("p50", "p90", "p99")
_COALESCED = 1.05
"""Tokens per read above which a note is printed. A few are always held back, or are a part of a character."""


def title(arguments: Arguments, model: str) -> str:
    """Return one line that describes the model, the server and the load."""
    work = arguments.workload
    prefix = f" after a common prefix of {work.shared_prefix}" if work.shared_prefix else ""
    parts = [
        f"{model} at {arguments.url}, {work.endpoint} {'streamed' if work.stream else 'whole'}",
        f"{counted(arguments.requests, 'request')} per stage",
        f"prompts of about {counted(work.prompt_tokens, 'token')}{prefix}",
        f"at most {counted(work.max_tokens, 'new token')}",
        f"seed {work.seed}",
    ]
    return "; ".join(parts)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 request`, `2 requests`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def head() -> str:
    """Return the two header lines of the table."""
    groups = "".join(f"{name:^{3 * _WIDTH}}" for name in ("to first token, ms", "inter-token, ms", "end to end, s"))
    names = "".join(f"{name:>{_WIDTH}}" for name in ("clients", "done", "tokens/s", *_NAMES * 3))
    return f"{'':{3 * _WIDTH + 1}}{groups.rstrip()}\n{names}"


def row(summary: Summary) -> str:
    """Return the table row of one stage."""
    done = f"{summary.succeeded}/{summary.requests}"
    cells = [str(summary.clients), done, _figure(summary.tokens_per_second)]
    cells += _cells(summary.time_to_first_token, 1e3) + _cells(summary.inter_token, 1e3) + _cells(summary.end_to_end, 1)
    return "".join(f"{cell:>{_WIDTH}}" for cell in cells)


def notes(summary: Summary) -> Iterator[str]:
    """Yield notes on one stage.

    They report tokens that were counted by chunks, the read gaps that the inter-token times hide, and each kind of
    failure.
    """
    if summary.tokens is not None and summary.counted_by == "chunks":
        yield "the server reported no usage: each chunk counts as one token"
    gap = summary.read_gap
    if gap and summary.tokens_per_read and summary.tokens_per_read > _COALESCED:
        yield (
            f"{summary.tokens_per_read:.1f} tokens per read share the gap between two reads: "
            f"p50 {gap.p50 * 1e3:.1f}, p99 {gap.p99 * 1e3:.1f} ms"
        )
    by_kind = defaultdict(list)
    for failure in summary.failures:
        by_kind[failure.kind].append(failure)
    for kind, failures in by_kind.items():
        yield f"{sum(failure.count for failure in failures)} failed, {kind}: {failures[0].words}"


def _cells(times: Percentiles | None, scale: float) -> list[str]:
    return [_figure(getattr(times, name) * scale if times else None) for name in _NAMES]


def _figure(value: float | None) -> str:
    """Return the value with about three significant digits, and whole numbers with all of theirs."""
    if value is None:
        return "-"
    decimals = 0 if value >= 1000 else 1 if value >= 10 else 2 if value >= 1 else 3  # noqa: PLR2004
    return f"{value:.{decimals}f}"
