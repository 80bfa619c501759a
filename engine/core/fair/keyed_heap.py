"""Heap from which items can be removed."""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")

_SLACK = 16
"""Entries of removed items that a small heap may keep."""


@dataclass(slots=True)
class _Place(Generic[ItemT]):
    """Place of one item in the heap."""

    item: ItemT | None
    """The item; unset after its removal."""


class KeyedHeap(Generic[ItemT]):
    """Items in the order of their keys. Items with equal keys are in the order in which they were put.

    The place of a removed item stays until it is the first, or until such places are the majority. So an operation
    costs O(log n), amortised.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Place[ItemT]]] = []
        self._places: dict[ItemT, _Place[ItemT]] = {}
        self._serials = count()

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._places)

    def __contains__(self, item: ItemT) -> bool:
        """Return whether an item is in the heap."""
        return item in self._places

    @property
    def first(self) -> ItemT | None:
        """The item with the smallest key; unset if the heap is empty."""
        while self._heap and self._heap[0][2].item is None:
            heappop(self._heap)
        return self._heap[0][2].item if self._heap else None

    def put(self, item: ItemT, key: int) -> None:
        """Add an item behind those with equal keys. An item that is in the heap is moved."""
        self.discard(item)
        place = self._places[item] = _Place(item)
        heappush(self._heap, (key, next(self._serials), place))

    def discard(self, item: ItemT) -> bool:
        """Remove an item. Return False if it is not in the heap."""
        place = self._places.pop(item, None)
        if place is None:
            return False
        place.item = None
        if len(self._heap) > 2 * len(self._places) + _SLACK:
            self._heap = [entry for entry in self._heap if entry[2].item is not None]
            heapify(self._heap)
        return True

    def ordered(self) -> list[ItemT]:
        """Return all items in order."""
        return [place.item for _, _, place in sorted(self._heap) if place.item is not None]
