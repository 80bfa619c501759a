"""Prefixes in host memory that outlive their slots: which are held, and which go first."""

from collections.abc import Callable, Iterator

from engine.core.kv.prefix import Prefix, StoredPrefix
from engine.core.kv.prefix_index import PrefixIndex
from engine.core.step import CellChange, Forget, Restore, Save

WORTH_SAVING = 128
"""Tokens. Fewer are computed again in about one prompt pass; and most short requests never come again."""


class PrefixStore:
    """Decides which prefixes stay in host memory, within a budget. A runner holds their bytes, and does as it says.

    A prefix that was restored stays: whoever took it over may leave without a trace, others may begin with it too, and
    to save it again would cost more than to keep it. It goes when a longer one that begins with it is saved.

    Attributes:
        bytes: of all that is held, never more than the budget.
        tokens: likewise.
        saved: tokens saved so far.
        restored: tokens restored so far.
    """

    def __init__(self, budget: int, bytes_of: Callable[[int], int]) -> None:
        """`budget` is in bytes, 0 holds nothing; `bytes_of` gives what so many tokens take at most."""
        self._budget = budget
        self._bytes_of = bytes_of
        self._prefixes: dict[int, StoredPrefix] = {}  # the least recently used first
        self._index = PrefixIndex()
        self._last_key = 0
        self._last_settled = 0
        self.bytes = 0
        self.tokens = 0
        self.saved = 0
        self.restored = 0

    def __iter__(self) -> Iterator[StoredPrefix]:
        """All that is held."""
        return iter(self._prefixes.values())

    def has_room(self, tokens: int) -> bool:
        """Whether so many could be held, if all else went."""
        return self._bytes_of(tokens) <= self._budget

    def find(self, wanted: Prefix, *, can_trim: bool) -> StoredPrefix | None:
        """Return the held prefix from which most can be taken over; without `can_trim`, by taking it whole."""
        return self._index.nearest(wanted) if can_trim else self._index.longest_within(wanted)

    def save(self, seq_id: int, prefix: Prefix, *, can_trim: bool) -> list[CellChange]:
        """Hold what a slot keeps, of which too little is held; gives what a runner does, which is first to make room.

        With `can_trim`, what it begins with is not needed any more.
        """
        changes: list[CellChange] = []
        if can_trim and (old := self._index.longest_within(prefix)):
            changes.append(self._forget(old))
        needed = self._bytes_of(prefix.size)
        while self._prefixes and self.bytes + needed > self._budget:
            changes.append(self._forget(next(iter(self))))
        self._last_key += 1
        self._add(StoredPrefix(self._last_key, prefix, needed))
        return [*changes, Save(self._last_key, seq_id)]

    def restore(self, stored: StoredPrefix, seq_id: int, tokens: int) -> Restore:
        """What a runner does to give a slot the first tokens of a prefix."""
        self.use(stored)
        self.restored += tokens
        return Restore(stored.key, seq_id, tokens)

    def use(self, stored: StoredPrefix) -> None:
        """Let all others go before this one."""
        self._prefixes[stored.key] = self._prefixes.pop(stored.key)

    def settle(self) -> None:
        """All that is held by now will have been saved before anything else is asked of it, or lost."""
        self._last_settled = self._last_key

    def is_settled(self, stored: StoredPrefix) -> bool:
        """Whether it is sure by now that a prefix could be saved."""
        return stored.key <= self._last_settled

    def lose(self, key: int) -> None:
        """Take out what could not be saved, unless it is out already."""
        if stored := self._prefixes.get(key):
            self._remove(stored)
            self.saved -= stored.size

    def _forget(self, stored: StoredPrefix) -> Forget:
        self._remove(stored)
        return Forget(stored.key)

    def _add(self, stored: StoredPrefix) -> None:
        self._prefixes[stored.key] = stored
        self._index.add(stored)
        self.bytes += stored.bytes
        self.tokens += stored.size
        self.saved += stored.size

    def _remove(self, stored: StoredPrefix) -> None:
        del self._prefixes[stored.key]
        self._index.remove(stored)
        self.bytes -= stored.bytes
        self.tokens -= stored.size
