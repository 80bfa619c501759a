"""Store of usage rows in an SQL database, beside the API keys or alone."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from datetime import date

from gateway.serving.records import Outcome
from gateway.storage.database import Database, Execute, Value
from gateway.storage.place import open_database
from gateway.usage.row import UsageRow

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS usage (
        id TEXT PRIMARY KEY,
        at DOUBLE PRECISION NOT NULL,
        day TEXT NOT NULL,
        key_id TEXT NOT NULL,
        model TEXT NOT NULL,
        operation TEXT NOT NULL,
        requests BIGINT NOT NULL,
        prompt_tokens BIGINT NOT NULL,
        cached_tokens BIGINT NOT NULL,
        completion_tokens BIGINT NOT NULL,
        outcome TEXT NOT NULL,
        phase TEXT NOT NULL,
        cause TEXT NOT NULL,
        seconds DOUBLE PRECISION NOT NULL,
        request_id TEXT NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS usage_by_time ON usage (at)",
)
COLUMNS = tuple(column.name for column in fields(UsageRow))
ADD = f"INSERT INTO usage ({', '.join(COLUMNS)}) VALUES "  # noqa: S608 - constants
PLACES = f"({', '.join('?' * len(COLUMNS))})"
REPLACE = f"""ON CONFLICT (id) DO UPDATE SET {", ".join(f"{column} = excluded.{column}" for column in COLUMNS)}
    WHERE excluded.outcome = '{Outcome.FINISHED}' OR usage.outcome <> '{Outcome.FINISHED}'"""
CHARGED = """SELECT key_id, SUM(prompt_tokens - cached_tokens + completion_tokens) FROM usage
    WHERE at >= ? AND at < ? GROUP BY key_id"""
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


class UsageStore:
    """Usage rows in a database. Its methods raise `StorageError` if the database cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self) -> None:
        """Create the table if it does not exist, also the database if it is a file."""
        await self._database.create(SCHEMA)

    async def add(self, rows: Sequence[UsageRow]) -> None:
        """Store all rows or none. Each id is there once.

        They replace stored ones with the same ids, but for a finished request that would seem unfinished: a gateway
        that was cut off may store its part later than the one that finished it.
        """
        values: list[Value] = [value for row in rows for value in astuple(row)]
        statement = f"{ADD} {', '.join([PLACES] * len(rows))} {REPLACE}"
        await self._database.write(lambda execute: execute(statement, values))

    async def charged(self, since: float, until: float) -> dict[str, int]:
        """Return the charged tokens of each key in a period, whose arguments are those of `usage_by_key`."""

        def read(execute: Execute) -> dict[str, int]:
            return {key_id: int(tokens) for key_id, tokens in execute(CHARGED, (since, until))}

        return await self._database.read(read)

    async def usage_by_key(self, since: float, until: float) -> list[KeyUsage]:
        """Return the sums of each day, key and model, in this order.

        Args:
            since: start of the period, in seconds since 1970.
            until: end of the period, which is not a part of it.
        """

        def read(execute: Execute) -> list[KeyUsage]:
            return [_decode(*row) for row in execute(BY_KEY, (since, until))]

        return await self._database.read(read)

    async def close(self) -> None:
        """Close the connection."""
        await self._database.close()


def usage_store(place: str) -> UsageStore:
    """Return the store in the database at a place, as `open_database` takes it."""
    return UsageStore(open_database(place))


def _decode(key_id: str, model: str, day: str, *sums: int) -> KeyUsage:
    return KeyUsage(key_id, model, date.fromisoformat(day), *map(int, sums))  # PostgreSQL sums to Decimal
