"""Phases of a request for a model, from the times of its record."""

from collections.abc import Iterator
from typing import NamedTuple

from gateway.serving.records import RequestRecord


class Phase(NamedTuple):
    """One phase of a request."""

    name: str
    """`intake`, `queue`, `prefill`, `decode`, or `embedding`, which includes its queue."""
    begin: float
    """Begin in seconds by the event loop's clock."""
    end: float
    """End in seconds by the event loop's clock."""


def phases_of(record: RequestRecord) -> Iterator[Phase]:
    """Return the phases that a request has reached, in order and without gaps. The last one ends with the request."""
    later = [("embedding", record.accepted_at)]
    if record.operation.generates:
        later = [("queue", record.accepted_at), ("prefill", record.started_at), ("decode", record.first_token_at)]
    begins = [("intake", record.arrived_at), *later]
    reached = [(name, begin) for name, begin in begins if begin is not None]
    ends = [begin for _, begin in reached[1:]] + [record.ended_at]
    for (name, begin), end in zip(reached, ends, strict=True):
        yield Phase(name, begin, max(begin, end))
