"""Waiting items of several clients, in turns."""

from collections import OrderedDict
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class ClientTurns(Generic[ItemT]):
    """Items in turns among clients: one of each client, its oldest first. The cost does not depend on their number."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[ItemT, None]] = OrderedDict()

    def __bool__(self) -> bool:
        """Return True if an item waits."""
        return bool(self._clients)

    def __len__(self) -> int:
        """Return the number of items that wait."""
        return sum(map(len, self._clients.values()))

    def add(self, client: str, item: ItemT) -> None:
        """Append an item to those of a client."""
        self._clients.setdefault(client, OrderedDict())[item] = None

    def discard(self, client: str, item: ItemT) -> None:
        """Remove an item if it waits."""
        items = self._clients.get(client)
        if items is not None and item in items:
            del items[item]
            if not items:
                del self._clients[client]

    def take(self) -> ItemT:
        """Remove and return the next item. The other items of its client wait until all other clients had a turn.

        Raises:
            KeyError: No item waits.
        """
        client, items = self._clients.popitem(last=False)
        item, _ = items.popitem(last=False)
        if items:
            self._clients[client] = items
        return item
