"""Store of conversations in the memory of this process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import orjson
from typing_extensions import override

from gateway.apis.openai.conversations.answer import Conversation
from gateway.apis.openai.conversations.request import PLACE
from gateway.apis.openai.conversations.store import (
    ConversationStore,
    Turn,
    check_new,
    check_size,
    conversation_not_found,
    item_not_found,
    locked,
    new_conversation,
)
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.pages import ItemPage, Page, page_of
from gateway.apis.openai.responses.store.shares import Shares


@dataclass(slots=True)
class _Kept:
    """A conversation in the store."""

    head: Conversation
    """The conversation."""
    items: dict[str, EncodedItem] = field(default_factory=dict)
    """Its items by id, in their order."""
    turn: Turn | None = None
    """The response that continues it now."""

    @property
    def size(self) -> int:
        """Size that counts against the limit of the memory, in bytes."""
        return len(orjson.dumps(self.head)) + sum(len(item.json) for item in self.items.values())


class MemoryConversations(ConversationStore):
    """Keeps conversations in the memory of this process, limited by `Shares`. Every call is a use of its conversation.

    A conversation larger than all of the memory is not kept.
    """

    def __init__(self, shares: Shares, *, max_recalled_bytes: int) -> None:
        """Create an empty store.

        Args:
            shares: counts the conversations as JSON with their items, and evicts them.
            max_recalled_bytes: maximum size of the items of one conversation that a response can continue.
        """
        self._shares = shares
        self._max_recalled_bytes = max_recalled_bytes
        self._kept: dict[tuple[str, str], _Kept] = {}

    @override
    async def create(self, owner: str, metadata: dict[str, str], items: Sequence[EncodedItem]) -> Conversation:
        head = new_conversation(metadata)
        kept = _Kept(head)
        self._check_added(kept, items)
        self._kept[owner, head["id"]] = kept
        self._put(owner, kept, items)
        return head

    @override
    async def get(self, owner: str, conversation_id: str) -> Conversation:
        return self._use(owner, conversation_id).head

    @override
    async def set_metadata(self, owner: str, conversation_id: str, metadata: dict[str, str]) -> Conversation:
        kept = self._use(owner, conversation_id)
        kept.head = {**kept.head, "metadata": metadata}
        self._put(owner, kept)
        return kept.head

    @override
    async def delete(self, owner: str, conversation_id: str) -> None:
        self._use(owner, conversation_id)
        self._shares.remove(owner, conversation_id)
        self._drop(owner, conversation_id)

    @override
    async def page(self, owner: str, conversation_id: str, page: Page) -> ItemPage:
        return page_of(list(self._use(owner, conversation_id).items.values()), page)

    @override
    async def item(self, owner: str, conversation_id: str, item_id: str) -> EncodedItem:
        return _item(self._use(owner, conversation_id), item_id)

    @override
    async def add(self, owner: str, conversation_id: str, items: Sequence[EncodedItem]) -> None:
        kept = self._unlocked(owner, conversation_id)
        self._check_added(kept, items)
        self._put(owner, kept, items)

    @override
    async def remove(self, owner: str, conversation_id: str, item_id: str) -> Conversation:
        kept = self._unlocked(owner, conversation_id)
        del kept.items[_item(kept, item_id).id]
        self._put(owner, kept)
        return kept.head

    @override
    async def read(self, owner: str, conversation_id: str) -> Sequence[EncodedItem]:
        items = list(self._use(owner, conversation_id).items.values())
        self._check_size(items, "conversation")
        return items

    @override
    async def begin(self, owner: str, conversation_id: str, request: str = "") -> tuple[Turn, Sequence[EncodedItem]]:
        kept = self._unlocked(owner, conversation_id)
        items = await self.read(owner, conversation_id)
        kept.turn = _MemoryTurn(kept, partial(self._end_turn, owner, kept))
        return kept.turn, items

    def _end_turn(self, owner: str, kept: _Kept, items: Sequence[EncodedItem]) -> None:
        """Add the items of a turn's response, unless the conversation is gone."""
        if self._kept.get((owner, kept.head["id"])) is kept:
            self._put(owner, kept, items)

    def _use(self, owner: str, conversation_id: str) -> _Kept:
        if (kept := self._kept.get((owner, conversation_id))) is None:
            raise conversation_not_found(conversation_id)
        self._shares.use(owner, conversation_id)
        return kept

    def _unlocked(self, owner: str, conversation_id: str) -> _Kept:
        kept = self._use(owner, conversation_id)
        if kept.turn is not None:
            raise locked()
        return kept

    def _put(self, owner: str, kept: _Kept, items: Sequence[EncodedItem] = ()) -> None:
        """Add items, and count the conversation's new size."""
        kept.items.update((item.id, item) for item in items)
        self._shares.put(owner, kept.head["id"], kept.size, partial(self._drop, owner, kept.head["id"]))

    def _drop(self, owner: str, conversation_id: str) -> None:
        del self._kept[owner, conversation_id]

    def _check_added(self, kept: _Kept, items: Sequence[EncodedItem]) -> None:
        known = list(kept.items.values())
        check_new(known, items, PLACE)
        self._check_size([*known, *items], PLACE)

    def _check_size(self, items: Sequence[EncodedItem], param: str) -> None:
        check_size(len(items), sum(len(item.json) for item in items), self._max_recalled_bytes, param)


class _MemoryTurn(Turn):
    """A turn of a conversation in memory."""

    def __init__(self, kept: _Kept, add: Callable[[Sequence[EncodedItem]], None]) -> None:
        self._kept = kept
        self._add = add

    @override
    async def end(self, items: Sequence[EncodedItem]) -> None:
        if self._kept.turn is self:
            self._kept.turn = None
            self._add(items)

    @override
    async def cancel(self) -> None:
        self.abandon()

    @override
    def abandon(self) -> None:
        if self._kept.turn is self:
            self._kept.turn = None


def _item(kept: _Kept, item_id: str) -> EncodedItem:
    if (item := kept.items.get(item_id)) is None:
        raise item_not_found(item_id)
    return item
