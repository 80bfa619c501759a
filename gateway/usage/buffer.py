"""Buffer of usage rows that wait for the disk. It is bounded, and loses no charge."""

import secrets
from collections.abc import Sequence
from itertools import count

from gateway.serving.records import Outcome, RequestRecord
from gateway.usage.row import Account, UsageRow, row_of


class UsageBuffer:
    """Rows in memory. Beyond its capacity it adds new rows up by key, model and day, which takes no memory a request.

    Rows leave it in batches, and only once they are stored: `first` returns a batch, `drop` removes it.
    """

    def __init__(self, capacity: int) -> None:
        """Create an empty buffer for `capacity` single rows."""
        self._capacity = capacity
        self._rows: list[UsageRow] = []
        self._sums: dict[Account, UsageRow] = {}
        self._process = secrets.token_hex(8)
        self._ids = count(1)

    def __len__(self) -> int:
        """Return the number of rows, with the sums."""
        return len(self._rows) + len(self._sums)

    @property
    def requests(self) -> int:
        """Number of requests in all rows."""
        return sum(row.requests for row in (*self._rows, *self._sums.values()))

    @property
    def tokens(self) -> int:
        """Number of charged tokens in all rows."""
        return sum(row.charged_tokens for row in (*self._rows, *self._sums.values()))

    def add(self, record: RequestRecord, time: float) -> None:
        """Add a request that ended at a time in seconds since 1970. One that was refused used nothing."""
        if record.outcome is Outcome.REFUSED:
            return
        row = row_of(record, self._next_id(), time)
        if len(self._rows) < self._capacity and not self._sums:
            self._rows.append(row)
            return
        total = self._sums.get(row.account)
        if total is None:
            key_id, model, day = row.account
            total = UsageRow(id=self._next_id(), at=time, day=day, key_id=key_id, model=model, requests=0)
            self._sums[row.account] = total
        total.add(row)

    def first(self, count: int) -> Sequence[UsageRow]:
        """Return the oldest rows, which do not change any more."""
        if not self._rows:
            self._rows, self._sums = list(self._sums.values()), {}
        return self._rows[:count]

    def drop(self, rows: Sequence[UsageRow]) -> None:
        """Remove rows that `first` returned."""
        del self._rows[: len(rows)]

    def _next_id(self) -> str:
        return f"{self._process}-{next(self._ids):012x}"
