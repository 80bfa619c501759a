"""Row of one request in the usage store."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from gateway.serving.records import RequestRecord

SUMMED = "summed"
"""Outcome of a row that is the sum of several requests."""

Account: TypeAlias = tuple[str, str, str]
"""Key id, model and day, by which rows are summed."""


@dataclass(slots=True, kw_only=True)
class UsageRow:
    """Use of the engine by one request, or by several of one key, model and day that were summed."""

    id: str
    """Unique id: that of the record. A row that is written again replaces the first one."""
    at: float
    """End of the request, in seconds since 1970; of the latest one in a sum."""
    day: str
    """Day of the end in UTC, as in `2026-11-22`."""
    key_id: str
    """Id of the API key; empty without a key."""
    model: str
    """Name of the model."""
    operation: str = ""
    """Kind of the request, as in `Operation`; empty in a sum."""
    requests: int = 1
    """Number of requests."""
    prompt_tokens: int = 0
    """Prompt tokens, computed or cached."""
    cached_tokens: int = 0
    """Of these, tokens with reused KV cells."""
    completion_tokens: int = 0
    """Generated tokens."""
    outcome: str = SUMMED
    """End of the request, as in `Outcome`."""
    phase: str = ""
    """Phase at its end."""
    cause: str = ""
    """Cause of an end that was no success."""
    seconds: float = 0.0
    """Time from its arrival to its end; in a sum of all."""
    request_id: str = ""
    """Id of the request in headers and logs; empty in a sum."""

    @property
    def account(self) -> Account:
        """Account of the row."""
        return self.key_id, self.model, self.day

    @property
    def charged_tokens(self) -> int:
        """Tokens that count against the key's limits, as in `gateway.limits`."""
        return self.prompt_tokens - self.cached_tokens + self.completion_tokens

    def add(self, other: "UsageRow") -> None:
        """Add another row of the same account."""
        self.at = max(self.at, other.at)
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.completion_tokens += other.completion_tokens
        self.seconds += other.seconds


def row_of(record: RequestRecord, time: float) -> UsageRow:
    """Return the row of a request that has ended at a time in seconds since 1970."""
    return UsageRow(
        id=record.id,
        at=time,
        day=datetime.fromtimestamp(time, UTC).date().isoformat(),
        key_id="" if record.caller.key is None else record.caller.key.id,
        model=record.model,
        operation=str(record.operation),
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.cached_tokens,
        completion_tokens=record.completion_tokens,
        outcome=str(record.outcome),
        phase=record.phase,
        cause=str(record.cause),
        seconds=record.ended_at - record.arrived_at,
        request_id=record.caller.request_id,
    )
