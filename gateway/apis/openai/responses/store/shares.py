"""Memory that owners share fairly, for the entries of several stores."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a store."""

    size: int
    """Its size, in bytes."""
    evict: Callable[[], object]
    """Removes it from its store."""


@dataclass(slots=True)
class _Owned:
    """Entries of one owner."""

    entries: OrderedDict[str, _Entry] = field(default_factory=OrderedDict)
    """Entries by id, the least recently used first."""
    size: int = 0
    """Size of all entries, in bytes."""


class Shares:
    """Counts the entries of stores, and evicts some of them if they are too many or too large together.

    The owner that uses most of the memory loses its least recently used entries. So an owner that uses at most its
    share keeps all.
    """

    def __init__(self, *, max_entries: int, max_bytes: int) -> None:
        """Set the limits of all entries together."""
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._owners: OrderedDict[str, _Owned] = OrderedDict()
        self._count = 0
        self._size = 0

    def put(self, owner: str, entry_id: str, size: int, evict: Callable[[], object]) -> None:
        """Count an entry, or its new size, as the most recently used one.

        Args:
            owner: owner of the entry.
            entry_id: id of the entry, unique among all stores.
            size: its size, in bytes. If it is larger than the whole memory, the entry is evicted, and no other one.
            evict: removes it from its store. It is called once, unless `remove` or another `put` comes first.
        """
        self.remove(owner, entry_id)
        if size > self._max_bytes:
            evict()
            return
        owned = self._owners.setdefault(owner, _Owned())
        self._owners.move_to_end(owner)
        owned.entries[entry_id] = _Entry(size, evict)
        owned.size += size
        self._count += 1
        self._size += size
        while self._overflows():
            self._shrink_largest()

    def use(self, owner: str, entry_id: str) -> None:
        """Make an entry the most recently used one. Has no effect on an unknown one."""
        owned = self._owners.get(owner)
        if owned is not None and entry_id in owned.entries:
            self._owners.move_to_end(owner)
            owned.entries.move_to_end(entry_id)

    def remove(self, owner: str, entry_id: str) -> None:
        """Stop counting an entry. Has no effect on an unknown one."""
        owned = self._owners.get(owner)
        if owned is None or (entry := owned.entries.pop(entry_id, None)) is None:
            return
        owned.size -= entry.size
        self._count -= 1
        self._size -= entry.size
        if not owned.entries:
            del self._owners[owner]

    def _overflows(self) -> bool:
        return self._count > self._max_entries or self._size > self._max_bytes

    def _shrink_largest(self) -> None:
        """Evict entries of the owner that uses most, until all fit or the owner has no more than its share."""
        largest = max(self._owners, key=self._part)
        share = 1 / len(self._owners)
        while self._overflows() and self._part(largest) > share:
            entry_id, entry = next(iter(self._owners[largest].entries.items()))
            self.remove(largest, entry_id)
            entry.evict()

    def _part(self, owner: str) -> float:
        """Return the part of the memory that an owner uses."""
        if (owned := self._owners.get(owner)) is None:
            return 0.0
        return max(len(owned.entries) / self._max_entries, owned.size / self._max_bytes)
