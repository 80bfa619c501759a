"""Responses and items of one owner."""

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
    """Responses of one owner, and their items by id.

    Clients may choose the ids of items. An id refers to the first item that was stored with it, until all responses
    with that same item are removed. A different item with the same id cannot be referenced. Ids of other owners' items
    and of the server's have no effect here.
    """

    def __init__(self) -> None:
        self._responses: dict[str, _Entry] = {}
        self._items: dict[str, EncodedItem] = {}
        self._further_uses: dict[str, int] = {}  # by id, of items that are stored more than once

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self._responses)

    def put(self, stored: StoredResponse) -> None:
        """Add a response."""
        self._responses[stored.id] = _Entry(stored, tuple(item.id for item in stored.items if self._share(item)))

    def get(self, response_id: str) -> StoredResponse | None:
        """Return a response, or None."""
        entry = self._responses.get(response_id)
        return entry.stored if entry else None

    def item(self, item_id: str) -> EncodedItem | None:
        """Return the item with this id, or None."""
        return self._items.get(item_id)

    def remove(self, response_id: str) -> bool:
        """Remove a response and its items. Return False if it is not stored."""
        if (entry := self._responses.pop(response_id, None)) is None:
            return False
        for item_id in entry.item_ids:
            self._release(item_id)
        return True

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
