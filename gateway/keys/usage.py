"""Sums of the usage that servers record in the store."""

from dataclasses import dataclass
from datetime import date

from gateway.storage.database import Database, Execute

BY_KEY = """SELECT key_id, model, day, SUM(requests), SUM(prompt_tokens), SUM(cached_tokens), SUM(completion_tokens)
    FROM usage WHERE at >= ? AND at < ? GROUP BY day, key_id, model ORDER BY day, key_id, model"""


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """Use of one model by one key on one day in UTC."""

    key_id: str
    """Id of the key; empty for requests without a key."""
    model: str
    """Name of the model."""
    day: date
    """The day."""
    requests: int
    """Number of requests."""
    prompt_tokens: int
    """Prompt tokens, computed or cached."""
    cached_tokens: int
    """Of these, tokens with reused KV cells."""
    completion_tokens: int
    """Generated tokens."""


async def usage_by_key(database: Database, since: float, until: float) -> list[KeyUsage]:
    """Return the sums of each day, key and model, in this order.

    Args:
        database: has the usage.
        since: start of the period, in seconds since 1970.
        until: end of the period, which is not a part of it.
    """

    def read(execute: Execute) -> list[KeyUsage]:
        return [_decode(*row) for row in execute(BY_KEY, (since, until))]

    return await database.read(read)


def _decode(key_id: str, model: str, day: str, *sums: int) -> KeyUsage:
    return KeyUsage(key_id, model, date.fromisoformat(day), *map(int, sums))  # PostgreSQL sums to Decimal
