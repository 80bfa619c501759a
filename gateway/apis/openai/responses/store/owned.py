"""Responses and items of one owner."""

from collections import OrderedDict
from dataclasses import dataclass

from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.stored_response import StoredResponse


@dataclass(frozen=True, slots=True)
class _Entry:
    """A stored response."""

    stored: StoredResponse
    """The response."""
    item_ids: tuple[str, ...]
    """Ids that refer to its items, once for each use."""


class OwnedResponses:
    """Responses of one owner, the least recently used first, and their items by id.

    Clients may choose the ids of items. An id refers to the first item that was stored with it, until all responses
    with that same item are removed. A different item with the same id cannot be referenced. Ids of other owners' items
    and of the server's have no effect here.
    """

    def __init__(self) -> None:
        self.size = 0
        """Size of all responses, in bytes."""
        self._responses: OrderedDict[str, _Entry] = OrderedDict()
        self._items: dict[str, EncodedItem] = {}
        self._further_uses: dict[str, int] = {}  # by id, of items that are stored more than once

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self._responses)

    def put(self, stored: StoredResponse) -> None:
        """Add a response as the most recently used one."""
        self._responses[stored.id] = _Entry(stored, tuple(item.id for item in stored.items if self._share(item)))
        self.size += stored.size

    def use(self, response_id: str) -> StoredResponse | None:
        """Return a response, now the most recently used one, or None."""
        if (entry := self._responses.get(response_id)) is None:
            return None
        self._responses.move_to_end(response_id)
        return entry.stored

    def item(self, item_id: str) -> EncodedItem | None:
        """Return the item with this id, or None."""
        return self._items.get(item_id)

    def remove(self, response_id: str) -> StoredResponse | None:
        """Remove a response and its items. Return the response, or None if it is not stored."""
        if (entry := self._responses.pop(response_id, None)) is None:
            return None
        self.size -= entry.stored.size
        for item_id in entry.item_ids:
            self._release(item_id)
        return entry.stored

    def oldest(self) -> str:
        """Return the id of the least recently used response."""
        return next(iter(self._responses))

    def _share(self, item: EncodedItem) -> bool:
        """Let the item's id refer to it. Return False if the id refers to a different item."""
        known = self._items.get(item.id)
        if known is None:
            self._items[item.id] = item
        elif known == item:
            self._further_uses[item.id] = self._further_uses.get(item.id, 0) + 1
        return known is None or known == item

    def _release(self, item_id: str) -> None:
        """End one use of an item. After the last one its id is unknown."""
        uses = self._further_uses.pop(item_id, 0)
        if not uses:
            del self._items[item_id]
        elif uses > 1:
            self._further_uses[item_id] = uses - 1
