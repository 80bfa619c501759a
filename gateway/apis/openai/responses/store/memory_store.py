"""Store of responses in the memory of this process, shared fairly among their owners."""

from collections.abc import Callable, Collection
from functools import partial

from typing_extensions import override

from gateway.apis.openai.conversations.store import TurnEnd
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.owned import OwnedResponses
from gateway.apis.openai.responses.store.recalled import Recalled, check_recalled
from gateway.apis.openai.responses.store.shares import Shares
from gateway.apis.openai.responses.store.store import ResponseStore, not_found
from gateway.apis.openai.responses.store.stored_response import StoredResponse


class MemoryResponses(ResponseStore):
    """Keeps responses in the memory of this process, limited by `Shares`."""

    def __init__(self, shares: Shares, *, max_recalled_bytes: int) -> None:
        """Create an empty store.

        Args:
            shares: counts the responses as JSON with their inputs, and evicts them.
            max_recalled_bytes: maximum size of one history, or of the items that one request references.
        """
        self._shares = shares
        self._max_recalled_bytes = max_recalled_bytes
        self._owners: dict[str, OwnedResponses] = {}
        self._running: dict[str, str] = {}  # owners of the responses that run in the background

    @override
    async def ready(self) -> None:
        """Do nothing: memory is always ready."""

    @override
    async def put(self, owner: str, stored: StoredResponse, end: TurnEnd | None = None) -> None:
        self._owners.setdefault(owner, OwnedResponses()).put(stored)
        self._shares.put(owner, stored.id, stored.size, partial(self._drop, owner, stored.id))
        if end is not None:
            await end.turn.end(end.items)

    @override
    async def get(self, owner: str, response_id: str) -> StoredResponse:
        if (stored := self._use(owner, response_id)) is None:
            raise not_found(response_id)
        return stored

    @override
    async def remove(self, owner: str, response_id: str) -> bool:
        self._shares.remove(owner, response_id)
        return self._drop(owner, response_id)

    @override
    async def history(self, owner: str, response_id: str) -> list[EncodedItem]:
        recalled = Recalled(response_id, self._max_recalled_bytes)
        parts: list[StoredResponse] = []
        while recalled.follows is not None:
            stored = self._use(owner, recalled.follows)
            if stored is None:
                raise recalled.missing(running=self._running.get(recalled.follows) == owner)
            recalled.add(stored.previous_id, len(stored.items), stored.items_size, can_continue=stored.can_continue)
            parts.append(stored)
        return [item for part in reversed(parts) for item in part.items]

    @override
    async def items(self, owner: str, ids: Collection[str], param: str) -> dict[str, EncodedItem]:
        owned = self._owners.get(owner, OwnedResponses())
        found = {item_id: item for item_id in ids if (item := owned.item(item_id)) is not None}
        check_recalled(sum(len(item.json) for item in found.values()), self._max_recalled_bytes, param)
        return found

    @override
    async def announce(self, owner: str, stored: StoredResponse, cancel: Callable[[], None]) -> None:
        self._running[stored.id] = owner

    @override
    def forget(self, response_id: str) -> None:
        self._running.pop(response_id, None)

    @override
    async def update(self, owner: str, stored: StoredResponse) -> None:
        """Do nothing: no other process asks."""

    @override
    async def cancel(self, owner: str, response_id: str) -> StoredResponse:
        return await self.get(owner, response_id)

    def _use(self, owner: str, response_id: str) -> StoredResponse | None:
        self._shares.use(owner, response_id)
        owned = self._owners.get(owner)
        return owned.get(response_id) if owned else None

    def _drop(self, owner: str, response_id: str) -> bool:
        owned = self._owners.get(owner)
        if owned is None or not owned.remove(response_id):
            return False
        if not len(owned):
            del self._owners[owner]
        return True
