"""Phases of a request for a model, from the times of its record."""

from collections.abc import Iterator
from typing import NamedTuple

from gateway.serving.records import RequestRecord


class Phase(NamedTuple):
    """One phase of a request."""

    name: str
    """`intake`, `queue`, `prefill`, `decode` or `embedding`."""
    begin: float
    """Begin in seconds by the event loop's clock."""
    end: float
    """End in seconds by the event loop's clock."""


def phases_of(record: RequestRecord) -> Iterator[Phase]:
    """Return the phases that a request has reached, in order and without gaps. The last one ends with the request."""
    begins = [("intake", record.arrived_at), ("queue", record.accepted_at), *_in_slot(record)]
    reached = [(name, begin) for name, begin in begins if begin is not None]
    ends = [begin for _, begin in reached[1:]] + [record.ended_at]
    for (name, begin), end in zip(reached, ends, strict=True):
        yield Phase(name, begin, max(begin, end))


def _in_slot(record: RequestRecord) -> list[tuple[str, float | None]]:
    """Return the phases after the queue. An answer that is not streamed has no first text before its end."""
    if record.started_at is None:
        return []
    if record.operation == "embeddings":
        return [("embedding", record.started_at)]
    if record.stream or record.completion_tokens == 0:
        decode_at = record.first_token_at
    else:
        decode_at = min(record.started_at + record.prefill_seconds, record.ended_at)
    return [("prefill", record.started_at), ("decode", decode_at)]
