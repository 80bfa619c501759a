"""Storage of conversations: what a store does, and its errors."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from typing_extensions import override

from engine import RequestError
from gateway.apis.openai.conversations.answer import Conversation
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.items import new_id
from gateway.apis.openai.responses.store.pages import ItemPage, Page
from gateway.apis.openai.responses.store.recalled import MAX_RECALLED_ITEMS
from gateway.middleware.errors import Problem, RefusedError


class Turn(Protocol):
    """One response that continues a conversation. Until its end no other response may."""

    async def end(self, items: Sequence[EncodedItem]) -> None:
        """Add the items of the response to the conversation, and let the next one begin.

        Has no effect on a conversation that was deleted or evicted meanwhile.
        """
        ...

    async def cancel(self) -> None:
        """Let the next response begin, without any change. Has no effect after the end. Is not interrupted."""
        ...

    def abandon(self) -> None:
        """Cancel the turn soon, where nothing can wait."""
        ...


class NoTurn(Turn):
    """A response that changes no conversation."""

    @override
    async def end(self, items: Sequence[EncodedItem]) -> None:
        """Do nothing."""

    @override
    async def cancel(self) -> None:
        """Do nothing."""

    @override
    def abandon(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The end of a turn, for who makes it a part of another change."""

    turn: Turn
    """The turn."""
    items: Sequence[EncodedItem]
    """Items that it adds to its conversation."""


class ConversationStore(Protocol):
    """Conversations, each of them visible only to its owner, which is as in `ResponseStore`.

    The methods that take the id of a conversation raise `RefusedError` (404) if the owner has none with this id. The
    ids of the items of one conversation are unique. `add`, `remove` and `begin` raise `RequestError` during a turn.
    """

    async def create(self, owner: str, metadata: dict[str, str], items: Sequence[EncodedItem]) -> Conversation:
        """Create a conversation. Raises `RequestError` as `add`."""
        ...

    async def get(self, owner: str, conversation_id: str) -> Conversation:
        """Return a conversation."""
        ...

    async def set_metadata(self, owner: str, conversation_id: str, metadata: dict[str, str]) -> Conversation:
        """Replace the metadata of a conversation, and return it."""
        ...

    async def delete(self, owner: str, conversation_id: str) -> None:
        """Delete a conversation with its items, also during a turn."""
        ...

    async def page(self, owner: str, conversation_id: str, page: Page) -> ItemPage:
        """Return a page of items. Raises `RequestError` if `after` is none of them."""
        ...

    async def item(self, owner: str, conversation_id: str, item_id: str) -> EncodedItem:
        """Return an item. Raises `RefusedError` (404) if the conversation has none with this id."""
        ...

    async def add(self, owner: str, conversation_id: str, items: Sequence[EncodedItem]) -> None:
        """Add items at the end. Raises `RequestError` if an id is in use, or if the conversation becomes too large."""
        ...

    async def remove(self, owner: str, conversation_id: str, item_id: str) -> Conversation:
        """Remove an item, and return its conversation. Raises `RefusedError` as `item`."""
        ...

    async def read(self, owner: str, conversation_id: str) -> Sequence[EncodedItem]:
        """Return all items. Raises `RequestError` if they are too large for one request."""
        ...

    async def begin(self, owner: str, conversation_id: str, request: str = "") -> tuple[Turn, Sequence[EncodedItem]]:
        """Begin a turn, and return it with all items. Raises `RequestError` as `read`, and during another turn.

        A request that runs again because its gateway has died takes over the turn that it began there.

        Args:
            owner: owner of the conversation.
            conversation_id: its id.
            request: unique id of the request; empty for one that never runs again. A store in the memory of one process
                needs none.
        """
        ...


def conversation_not_found(conversation_id: str) -> RefusedError:
    """Return the 404 error for a conversation that its owner does not have."""
    message = f"Conversation with id {conversation_id[:100]!r} not found."
    return RefusedError(Problem(status=HTTPStatus.NOT_FOUND, message=message, code="conversation_not_found"))


def item_not_found(item_id: str) -> RefusedError:
    """Return the 404 error for an item that a conversation does not have."""
    message = f"Item with id {item_id[:100]!r} not found."
    return RefusedError(Problem(status=HTTPStatus.NOT_FOUND, message=message, code="item_not_found"))


def locked() -> RequestError:
    """Return the error for a change of a conversation during a turn: OpenAI's, with its code and status."""
    message = "Another response is being made in this conversation. Try again when it has ended."
    return RequestError(message, code="conversation_locked", param="conversation")


def new_conversation(metadata: dict[str, str]) -> Conversation:
    """Return a new conversation."""
    return {"id": new_id("conv"), "object": "conversation", "created_at": int(time.time()), "metadata": metadata}


def check_size(count: int, size: int, max_bytes: int, param: str) -> None:
    """Raise `RequestError` if a conversation has too many items, or more bytes than one request may recall."""
    if count > MAX_RECALLED_ITEMS:
        message = f"The conversation has more than {MAX_RECALLED_ITEMS} items."
    elif size > max_bytes:
        message = f"The items of the conversation have more than {max_bytes} bytes together."
    else:
        return
    raise RequestError(message, code="context_length_exceeded", param=param)


def check_new(known: Sequence[EncodedItem], items: Sequence[EncodedItem], place: str) -> None:
    """Raise `RequestError` if the id of an item is that of a known one, or of one before it.

    Args:
        known: items of the conversation.
        items: items to add to it.
        place: name of the field that has them.
    """
    ids = {item.id for item in known}
    for item in items:
        if item.id in ids:
            message = f"{place}: the conversation would have two items with the id {item.id[:100]!r}"
            raise RequestError(message, code="duplicate_item", param=place)
        ids.add(item.id)
