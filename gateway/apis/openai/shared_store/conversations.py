"""Conversations in the shared store."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import orjson
from typing_extensions import override

from gateway.apis.openai.conversations.answer import Conversation
from gateway.apis.openai.conversations.request import PLACE
from gateway.apis.openai.conversations.store import (
    ConversationStore,
    NoTurn,
    Turn,
    check_new,
    check_size,
    conversation_not_found,
    item_not_found,
    locked,
    new_conversation,
)
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.pages import ItemPage, Page, unknown_after
from gateway.apis.openai.shared_store.entries import add_items, id_of, lock, make_room, use
from gateway.apis.openai.shared_store.presence import Presence, same_request
from gateway.apis.openai.shared_store.records import ADD_ENTRY, read_items
from gateway.apis.openai.shared_store.storage import Storage
from gateway.apis.openai.stores import Bounds
from gateway.storage.database import Execute

T = TypeVar("T")

ADD = "INSERT INTO stored_conversations (id, head) VALUES (?, ?)"
HEAD = """SELECT head, CASE WHEN EXISTS
        (SELECT 1 FROM stored_gateways g WHERE g.id = turn_gateway AND g.expires_at > clock_timestamp()) THEN turn END
    FROM stored_conversations c JOIN stored_entries USING (id) WHERE id = ? AND owner = ? FOR UPDATE OF c"""
"""A conversation and the turn that it has. The turn of a dead gateway has ended."""
SET_HEAD = "UPDATE stored_conversations SET head = ? WHERE id = ?"
SIZES = "SELECT count(*), COALESCE(sum(octet_length(json)), 0) FROM stored_items WHERE entry = ?"
GROW = "UPDATE stored_entries SET bytes = ? WHERE id = ?"
KNOWN = "SELECT id FROM stored_items WHERE entry = ? AND id = ANY(?)"
REMOVE = "DELETE FROM stored_entries WHERE id = ?"
ITEM = "SELECT json, number FROM stored_items WHERE entry = ? AND id = ?"
REMOVE_ITEM = "DELETE FROM stored_items WHERE entry = ? AND id = ? RETURNING 1"
UP = "SELECT id, json FROM stored_items WHERE entry = ? AND number > ? ORDER BY number LIMIT ?"
DOWN = "SELECT id, json FROM stored_items WHERE entry = ? AND number < ? ORDER BY number DESC LIMIT ?"
BEGIN = "UPDATE stored_conversations SET turn = ?, turn_gateway = ? WHERE id = ?"
END = "UPDATE stored_conversations SET turn = NULL, turn_gateway = NULL WHERE id = ? AND turn = ? RETURNING head"
BEHIND_ALL = 2**62
"""Number behind those of all items."""


class SharedConversations(ConversationStore):
    """Keeps conversations in PostgreSQL. Every call is a use of its conversation.

    A turn belongs to the lease of its gateway, and ends with it.
    """

    def __init__(self, storage: Storage, presence: Presence, bounds: Bounds) -> None:
        self._storage = storage
        self._presence = presence
        self._bounds = bounds

    @override
    async def create(self, owner: str, metadata: dict[str, str], items: Sequence[EncodedItem]) -> Conversation:
        head = new_conversation(metadata)
        entry = id_of(head["id"])

        def work(execute: Execute) -> None:
            lock(execute)
            if execute(ADD_ENTRY, (entry, owner, 0)):
                execute(ADD, (entry, orjson.dumps(head)))
                self._add(execute, owner, entry, items)
                self._resize(execute, entry, head)

        await self._storage.run(work)
        return head

    @override
    async def get(self, owner: str, conversation_id: str) -> Conversation:
        return await self._use(owner, conversation_id, lambda _execute, head: head)

    @override
    async def set_metadata(self, owner: str, conversation_id: str, metadata: dict[str, str]) -> Conversation:
        def work(execute: Execute, head: Conversation) -> Conversation:
            changed: Conversation = {**head, "metadata": metadata}
            execute(SET_HEAD, (orjson.dumps(changed), id_of(conversation_id)))
            self._resize(execute, id_of(conversation_id), changed)
            return changed

        return await self._use(owner, conversation_id, work, changes=True)

    @override
    async def delete(self, owner: str, conversation_id: str) -> None:
        def work(execute: Execute, _head: Conversation) -> None:
            execute(REMOVE, (id_of(conversation_id),))

        await self._use(owner, conversation_id, work, changes=True)

    @override
    async def page(self, owner: str, conversation_id: str, page: Page) -> ItemPage:
        def work(execute: Execute, _head: Conversation) -> ItemPage:
            entry, rises = id_of(conversation_id), page.order == "asc"
            after = 0 if rises else BEHIND_ALL
            if page.after is not None:
                found = execute(ITEM, (entry, id_of(page.after)))
                if not found:
                    raise unknown_after()
                after = found[0][1]
            rows = execute(UP if rises else DOWN, (entry, after, page.limit + 1))
            items = [EncodedItem(item_id.decode(), json) for item_id, json in rows]
            return ItemPage(items[: page.limit], len(items) > page.limit)

        return await self._use(owner, conversation_id, work)

    @override
    async def item(self, owner: str, conversation_id: str, item_id: str) -> EncodedItem:
        def work(execute: Execute, _head: Conversation) -> EncodedItem:
            found = execute(ITEM, (id_of(conversation_id), id_of(item_id)))
            if not found:
                raise item_not_found(item_id)
            return EncodedItem(item_id, found[0][0])

        return await self._use(owner, conversation_id, work)

    @override
    async def add(self, owner: str, conversation_id: str, items: Sequence[EncodedItem]) -> None:
        def work(execute: Execute, head: Conversation) -> None:
            self._add(execute, owner, id_of(conversation_id), items)
            self._resize(execute, id_of(conversation_id), head)

        await self._use(owner, conversation_id, work, turn="", changes=True)

    @override
    async def remove(self, owner: str, conversation_id: str, item_id: str) -> Conversation:
        def work(execute: Execute, head: Conversation) -> Conversation:
            if not execute(REMOVE_ITEM, (id_of(conversation_id), id_of(item_id))):
                raise item_not_found(item_id)
            self._resize(execute, id_of(conversation_id), head)
            return head

        return await self._use(owner, conversation_id, work, turn="", changes=True)

    @override
    async def read(self, owner: str, conversation_id: str) -> Sequence[EncodedItem]:
        return await self._use(
            owner, conversation_id, lambda execute, _head: self._read(execute, id_of(conversation_id))
        )

    @override
    async def begin(self, owner: str, conversation_id: str, request: str = "") -> tuple[Turn, Sequence[EncodedItem]]:
        entry, name = id_of(conversation_id), self._presence.new_turn(request)

        def work(execute: Execute, _head: Conversation) -> Sequence[EncodedItem]:
            items = self._read(execute, entry)
            self._presence.renew(execute)
            execute(BEGIN, (name, self._presence.gateway, entry))
            return items

        def end(execute: Execute, items: Sequence[EncodedItem]) -> None:
            self._end(execute, owner, entry, name, items)

        try:
            items = await self._use(owner, conversation_id, work, turn=name)
        except BaseException:
            self._presence.abandon(name)
            raise
        return SharedTurn(name, self._storage, self._presence, end), items

    def _end(self, execute: Execute, owner: str, entry: bytes, turn: str, items: Sequence[EncodedItem]) -> None:
        """End a turn, and add the items of its response. Has no effect if it is no longer that of the conversation."""
        lock(execute)
        for (head,) in execute(END, (entry, turn)):
            use(execute, owner, [entry])
            add_items(execute, owner, entry, items, [False] * len(items))
            self._resize(execute, entry, orjson.loads(head))

    async def _use(
        self,
        owner: str,
        conversation_id: str,
        work: Callable[[Execute, Conversation], T],
        *,
        turn: str | None = None,
        changes: bool = False,
    ) -> T:
        """Run work on a conversation.

        Args:
            owner: owner of the conversation.
            conversation_id: its id.
            work: gets the conversation.
            turn: turn to begin, empty for a change without one; None if others' turns do not matter.
            changes: True if the size of the conversation changes.

        Raises:
            RefusedError: 404, the owner has no such conversation.
            RequestError: it has another turn.
        """

        def run(execute: Execute) -> T:
            if changes:
                lock(execute)
            found = execute(HEAD, (id_of(conversation_id), owner))
            if not found:
                raise conversation_not_found(conversation_id)
            use(execute, owner, [id_of(conversation_id)])
            ((head, current),) = found
            if turn is not None and current is not None and not self._may_follow(turn, current):
                raise locked()
            return work(execute, orjson.loads(head))

        return await self._storage.run(run)

    def _may_follow(self, turn: str, current: str) -> bool:
        """Return True if a turn may replace the current one: that of the same request, or one that is over."""
        return same_request(turn, current) or self._presence.is_over(current)

    def _add(self, execute: Execute, owner: str, entry: bytes, items: Sequence[EncodedItem]) -> None:
        """Add the items of a request. Raises `RequestError` if an id is in use, or if they are too large."""
        known = execute(KNOWN, (entry, [id_of(item.id) for item in items]))
        check_new([EncodedItem(item_id.decode(), b"") for (item_id,) in known], items, PLACE)
        ((count, size),) = execute(SIZES, (entry,))
        added = sum(len(item.json) for item in items)
        check_size(count + len(items), int(size) + added, self._bounds.recalled, PLACE)
        add_items(execute, owner, entry, items, [False] * len(items))

    def _read(self, execute: Execute, entry: bytes) -> Sequence[EncodedItem]:
        ((count, size),) = execute(SIZES, (entry,))
        check_size(count, int(size), self._bounds.recalled, "conversation")
        return read_items(execute, entry)

    def _resize(self, execute: Execute, entry: bytes, head: Conversation) -> None:
        """Count the new size of a conversation, and evict others for it."""
        ((_, size),) = execute(SIZES, (entry,))
        total = len(orjson.dumps(head)) + int(size)
        execute(GROW, (total, entry))
        make_room(execute, entry, total, self._bounds)


class UnlockedConversations(SharedConversations):
    """Keeps conversations for a process that only wants to know what a turn would begin with."""

    @override
    async def begin(self, owner: str, conversation_id: str, request: str = "") -> tuple[Turn, Sequence[EncodedItem]]:
        return NoTurn(), await self.read(owner, conversation_id)


class SharedTurn(Turn):
    """A turn of a conversation in the shared store."""

    def __init__(
        self,
        name: str,
        storage: Storage,
        presence: Presence,
        end: Callable[[Execute, Sequence[EncodedItem]], None],
    ) -> None:
        self._name = name
        self._storage = storage
        self._presence = presence
        self.end_within = end
        """Ends it within a transaction. `ended` follows."""
        self._settled = False
        """True once the database knows that it is over."""

    @property
    def over(self) -> bool:
        """True if it has ended or was abandoned, even if the database does not know yet."""
        return self._presence.is_over(self._name)

    def ended(self) -> None:
        """Note that the transaction that ends it was made."""
        self._presence.forget_turn(self._name)
        self._settled = True

    @override
    async def end(self, items: Sequence[EncodedItem]) -> None:
        if not self.over:
            await self._storage.run(lambda execute: self.end_within(execute, items))
            self.ended()

    @override
    async def cancel(self) -> None:
        if not self._settled:
            self._presence.abandon(self._name)
            await self._presence.released()
            self._settled = True

    @override
    def abandon(self) -> None:
        self._presence.abandon(self._name)
