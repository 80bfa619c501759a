"""Buffer of usage rows that wait for the disk. It is bounded, and loses no charge."""

import secrets
from collections.abc import Sequence
from itertools import islice

from gateway.serving.records import Outcome, RequestRecord
from gateway.usage.row import Account, UsageRow, row_of


class UsageBuffer:
    """Rows in memory. Beyond its capacity it adds new rows up by key, model and day, which takes no memory a request.

    Rows leave it in batches, and only once they are stored: `first` returns a batch, `drop` removes it.
    """

    def __init__(self, capacity: int) -> None:
        """Create an empty buffer for `capacity` single rows."""
        self._capacity = capacity
        self._rows: dict[str, UsageRow] = {}
        self._sums: dict[Account, UsageRow] = {}
        self.last: UsageRow | None = None
        """The row that has the request that was added last."""

    def __len__(self) -> int:
        """Return the number of rows, with the sums."""
        return len(self._rows) + len(self._sums)

    @property
    def requests(self) -> int:
        """Number of requests in all rows."""
        return sum(row.requests for row in (*self._rows.values(), *self._sums.values()))

    @property
    def tokens(self) -> int:
        """Number of charged tokens in all rows."""
        return sum(row.charged_tokens for row in (*self._rows.values(), *self._sums.values()))

    def add(self, record: RequestRecord, time: float) -> None:
        """Add a request that ended at a time in seconds since 1970. One that was refused used nothing."""
        if record.outcome is Outcome.REFUSED:
            return
        row = row_of(record, time)
        replaced = self._rows.pop(row.id, None)
        if replaced is not None or (len(self._rows) < self._capacity and not self._sums):
            self._rows[row.id] = self.last = row
            return
        total = self._sums.get(row.account)
        if total is None:
            key_id, model, day = row.account
            total = UsageRow(id=secrets.token_hex(16), at=time, day=day, key_id=key_id, model=model, requests=0)
            self._sums[row.account] = total
        total.add(row)
        self.last = total

    def first(self, count: int) -> Sequence[UsageRow]:
        """Return the oldest rows, which do not change any more."""
        if not self._rows:
            self._rows, self._sums = {row.id: row for row in self._sums.values()}, {}
        return list(islice(self._rows.values(), count))

    def drop(self, rows: Sequence[UsageRow]) -> None:
        """Remove rows that `first` returned, but for those that were replaced since."""
        for row in rows:
            if self._rows.get(row.id) is row:
                del self._rows[row.id]

    def holds(self, row: UsageRow) -> bool:
        """Return True if a row that was the `last` one is still here."""
        return self._rows.get(row.id) is row or self._sums.get(row.account) is row
