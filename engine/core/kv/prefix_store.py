"""Prefixes in host memory that outlive their slots, and their eviction."""

from collections.abc import Callable, Iterator
from itertools import islice

from engine.core.kv.cell_changes import CellChange, Forget, Restore, Rewind, Save
from engine.core.kv.prefix import Prefix, StoredPrefix
from engine.core.kv.prefix_file import Fetch, PrefixFile
from engine.core.kv.prefix_index import PrefixIndex

WORTH_SAVING = 64
"""Tokens. Fewer are recomputed in one prompt step, and most short requests never come again."""
MIN_SPEED_OF_SAVES = 4
"""Cells that are copied in the time of computing one token. A saved prefix may never come again, and the copy delays
other sequences now, so that slower copies, such as those of a device, do not pay."""
NEEDED_CHECKPOINTS = 2
"""Checkpoints of a conversation that its next turn needs: its prompt may differ from this one behind the last message,
or behind the one before."""
MOST_CHECKPOINTS = 8
"""Checkpoints of one conversation. The next turn needs the last two; earlier ones serve edits further back, and others
that begin alike."""


class PrefixStore:
    """Decides which prefixes and checkpoints stay in host memory, within a budget. A runner holds the bytes.

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
    reads: int
    """Reads of files that have ended."""
    bytes_of: Callable[[int], int]
    """Returns the maximum size of so many tokens."""

    def __init__(
        self, budget: int, bytes_of: Callable[[int], int], partial_bytes_of: Callable[[int], int] | None = None
    ) -> None:
        """Start empty.

        Args:
            budget: maximum number of bytes; 0 disables the store.
            bytes_of: returns the maximum size of so many tokens.
            partial_bytes_of: returns the maximum size of a partial state after so many tokens. None makes each
                checkpoint a prefix with all its cells, for models whose state does not grow.
        """
        self._budget = budget
        self.bytes_of = bytes_of
        self._has_partial_states = partial_bytes_of is not None
        self._checkpoint_bytes = partial_bytes_of or bytes_of
        self._prefixes: dict[int, StoredPrefix] = {}  # least recently used first
        self._index = PrefixIndex[StoredPrefix]()
        self._checkpoints = PrefixIndex[StoredPrefix]()
        self._last_key = 0
        self._last_saved = 0
        self._reading: set[int] = set()
        self.bytes = 0
        self.tokens = 0
        self.saved = 0
        self.restored = 0
        self.reads = 0

    def __iter__(self) -> Iterator[StoredPrefix]:
        """Iterate over all prefixes, the least recently used first."""
        return iter(self._prefixes.values())

    def has_room(self, tokens: int) -> bool:
        """Return whether so many tokens would fit in an empty store."""
        return self.fits(self.bytes_of(tokens))

    def fits(self, size: int) -> bool:
        """Return whether so many bytes would fit in an empty store."""
        return size <= self._budget

    @property
    def newest(self) -> StoredPrefix:
        """The entry that was added or used last."""
        return next(reversed(self._prefixes.values()))

    @property
    def reading(self) -> bool:
        """True while an entry is read from a file."""
        return bool(self._reading)

    def __contains__(self, stored: StoredPrefix) -> bool:
        """Return whether a prefix or a checkpoint has not been evicted."""
        return stored.key in self._prefixes

    def find(self, wanted: Prefix) -> Iterator[StoredPrefix]:
        """Yield the prefix with the longest common part, and the longest one that `wanted` begins with."""
        return self._index.find(wanted)

    def find_checkpoint(self, wanted: Prefix) -> StoredPrefix | None:
        """Return the partial checkpoint with most tokens that `wanted` begins with."""
        return self._checkpoints.longest_within(wanted)

    def save(self, seq_id: int, prefix: Prefix, *, can_trim: bool) -> list[CellChange]:
        """Add the prefix that a slot holds. Return the changes for the runner, evictions first.

        With `can_trim` a stored prefix that it begins with is evicted, because the longer one replaces it.
        """
        old = self._index.longest_within(prefix) if can_trim else None
        superseded = [self._forget(old)] if old else []
        return [*superseded, *self._save(seq_id, prefix, self.bytes_of(prefix.size))]

    def save_checkpoint(self, seq_id: int, prefix: Prefix) -> list[CellChange]:
        """Add a checkpoint of the prefix that a slot holds, unless there is one. Return the changes for the runner."""
        earlier = list(self._all_checkpoints(prefix))
        if earlier and earlier[0].size == prefix.size:
            self.use(earlier[0])
            return []
        if not self.has_room_for_checkpoint(prefix.size):
            return []
        surplus = [next(one for one in self if one in earlier)] if len(earlier) >= MOST_CHECKPOINTS else []
        forgotten = [self._forget(one) for one in surplus]
        needed = self._checkpoint_bytes(prefix.size)
        return [*forgotten, *self._save(seq_id, prefix, needed, partial=self._has_partial_states)]

    def last_checkpoints(self, prefix: Prefix) -> Iterator[StoredPrefix]:
        """Yield the checkpoints that the next turn needs."""
        return islice(self._all_checkpoints(prefix), NEEDED_CHECKPOINTS)

    def _all_checkpoints(self, prefix: Prefix) -> Iterator[StoredPrefix]:
        return (self._checkpoints if self._has_partial_states else self._index).all_within(prefix)

    def has_room_for_checkpoint(self, tokens: int) -> bool:
        """Return whether a checkpoint after so many tokens would fit in an empty store."""
        return self.fits(self._checkpoint_bytes(tokens))

    def restore(self, stored: StoredPrefix, seq_id: int, tokens: int) -> Restore:
        """Return the change that copies the first tokens of a prefix to a slot."""
        self.use(stored)
        self.restored += tokens
        return Restore(stored.key, seq_id, tokens)

    def rewind(self, checkpoint: StoredPrefix, seq_id: int) -> Rewind:
        """Return the change that rolls a slot back to a checkpoint."""
        self.use(checkpoint)
        return Rewind(checkpoint.key, seq_id, checkpoint.size)

    def use(self, stored: StoredPrefix) -> None:
        """Make this prefix the last to be evicted."""
        self._prefixes[stored.key] = self._prefixes.pop(stored.key)

    def mark_saved(self) -> None:
        """Mark all prefixes as saved: the runner saves them before its next step, or `drop_unsaved` follows."""
        self._last_saved = self._last_key

    def is_saved(self, stored: StoredPrefix) -> bool:
        """Return whether a prefix is known to be saved."""
        return stored.key <= self._last_saved and stored.key not in self._reading

    def fetch(self, file: PrefixFile) -> list[CellChange]:
        """Add the prefix of a file, to be read. Return the changes for the runner, evictions first."""
        stored, evicted = self._admit(file.prefix, file.bytes, partial=file.partial)
        self._reading.add(stored.key)
        return [*evicted, Fetch(file, stored.key)]

    def end_read(self, key: int, *, found: bool) -> list[Forget]:
        """Record that a read has ended. An entry that was not found is removed. Return the changes for the runner."""
        self.reads += 1
        self._reading.discard(key)
        stored = None if found else self._prefixes.get(key)
        return [self._forget(stored)] if stored else []

    def drop_unsaved(self, key: int) -> None:
        """Remove a prefix that the runner could not save, unless it is evicted already."""
        if stored := self._prefixes.get(key):
            self._remove(stored)
            self.saved -= stored.cells

    def _save(self, seq_id: int, prefix: Prefix, needed: int, *, partial: bool = False) -> list[CellChange]:
        """Add an entry. Return the changes, evictions first."""
        stored, evicted = self._admit(prefix, needed, partial=partial)
        self.saved += stored.cells
        return [*evicted, Save(stored.key, seq_id, partial)]

    def _admit(self, prefix: Prefix, needed: int, *, partial: bool) -> tuple[StoredPrefix, list[CellChange]]:
        """Add an entry. Return it, and the evictions that make room for it."""
        evicted: list[CellChange] = []
        while self._prefixes and self.bytes + needed > self._budget:
            evicted.append(self._forget(next(iter(self))))
        self._last_key += 1
        stored = StoredPrefix(self._last_key, prefix, needed, partial)
        self._add(stored)
        return stored, evicted

    def forget_alike(self, prefix: Prefix) -> list[CellChange]:
        """Remove all prefixes that begin with this one, or that it begins with. Return the changes for the runner.

        An empty prefix is like no other.
        """
        alike = [one for one in self if 0 < one.prefix.common(prefix) == min(one.size, prefix.size)]
        return [self._forget(one) for one in alike]

    def _forget(self, stored: StoredPrefix) -> Forget:
        self._remove(stored)
        return Forget(stored.key)

    def _add(self, stored: StoredPrefix) -> None:
        self._prefixes[stored.key] = stored
        self._index_of(stored).add(stored)
        self.bytes += stored.bytes
        self.tokens += stored.cells

    def _remove(self, stored: StoredPrefix) -> None:
        del self._prefixes[stored.key]
        self._reading.discard(stored.key)
        self._index_of(stored).remove(stored)
        self.bytes -= stored.bytes
        self.tokens -= stored.cells

    def _index_of(self, stored: StoredPrefix) -> PrefixIndex[StoredPrefix]:
        return self._checkpoints if stored.partial else self._index
