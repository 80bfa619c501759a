"""Prefixes in host memory that outlive their slots, and their eviction."""

from collections.abc import Callable, Iterator

from engine.core.kv.prefix import Prefix, StoredPrefix
from engine.core.kv.prefix_index import PrefixIndex
from engine.core.step import CellChange, Forget, Restore, Save

WORTH_SAVING = 128
"""Tokens. Fewer are recomputed in about one prompt step, and most short requests never come again."""


class PrefixStore:
    """Decides which prefixes stay in host memory, within a budget. A runner holds the bytes.

    A restored prefix stays: its request may be cancelled, other requests may begin with it too, and saving it again
    would cost more than keeping it. It goes when a longer one that begins with it is saved.
    """

    bytes: int
    """Bytes held, never more than the budget."""
    tokens: int
    """Tokens held."""
    saved: int
    """Tokens saved so far."""
    restored: int
    """Tokens restored so far."""

    def __init__(self, budget: int, bytes_of: Callable[[int], int]) -> None:
        """Start empty.

        Args:
            budget: maximum number of bytes; 0 disables the store.
            bytes_of: returns the maximum size of so many tokens.
        """
        self._budget = budget
        self._bytes_of = bytes_of
        self._prefixes: dict[int, StoredPrefix] = {}  # least recently used first
        self._index = PrefixIndex()
        self._last_key = 0
        self._last_saved = 0
        self.bytes = 0
        self.tokens = 0
        self.saved = 0
        self.restored = 0

    def __iter__(self) -> Iterator[StoredPrefix]:
        """Iterate over all prefixes, the least recently used first."""
        return iter(self._prefixes.values())

    def has_room(self, tokens: int) -> bool:
        """Return whether so many tokens would fit in an empty store."""
        return self._bytes_of(tokens) <= self._budget

    def find(self, wanted: Prefix, *, can_trim: bool) -> StoredPrefix | None:
        """Return the prefix with most reusable tokens. Without `can_trim` only a whole prefix can be reused."""
        return self._index.nearest(wanted) if can_trim else self._index.longest_within(wanted)

    def save(self, seq_id: int, prefix: Prefix, *, can_trim: bool) -> list[CellChange]:
        """Add the prefix that a slot holds. Return the changes for the runner, evictions first.

        With `can_trim` a stored prefix that it begins with is evicted, because the longer one replaces it.
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
        """Return the change that copies the first tokens of a prefix to a slot."""
        self.use(stored)
        self.restored += tokens
        return Restore(stored.key, seq_id, tokens)

    def use(self, stored: StoredPrefix) -> None:
        """Make this prefix the last to be evicted."""
        self._prefixes[stored.key] = self._prefixes.pop(stored.key)

    def mark_saved(self) -> None:
        """Mark all prefixes as saved: the runner saves them before its next step, or `drop_unsaved` follows."""
        self._last_saved = self._last_key

    def is_saved(self, stored: StoredPrefix) -> bool:
        """Return whether a prefix is known to be saved."""
        return stored.key <= self._last_saved

    def drop_unsaved(self, key: int) -> None:
        """Remove a prefix that the runner could not save, unless it is evicted already."""
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
