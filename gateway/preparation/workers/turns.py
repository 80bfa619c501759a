"""A queue in which clients take turns: one that adds many items delays the others by one item at most."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Turns(Generic[_Item]):
    """Items by client. The client whose last turn is longest ago is next."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[_Item]] = OrderedDict()

    def add(self, client: str, item: _Item) -> None:
        """Add an item behind the client's others."""
        self._clients.setdefault(client, deque()).append(item)

    def take(self) -> _Item | None:
        """Remove and return the next item; None if the queue is empty."""
        if not self._clients:
            return None
        client, items = self._clients.popitem(last=False)
        item = items.popleft()
        if items:
            self._clients[client] = items
        return item

    def remove(self, client: str, item: _Item) -> None:
        """Remove an item that was not taken."""
        items = self._clients[client]
        items.remove(item)
        if not items:
            del self._clients[client]

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))
