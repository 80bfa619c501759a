"""Endpoints of OpenAI's conversations: `/v1/conversations`."""

from typing import Any, cast

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call, Endpoint
from gateway.apis.openai.conversations.answer import Conversation, DeletedConversation
from gateway.apis.openai.conversations.request import (
    PLACE,
    ConversationBody,
    ItemsBody,
    MetadataBody,
    NewConversation,
    prepare_conversation,
    prepare_items,
    prepare_metadata,
)
from gateway.apis.openai.conversations.store import ConversationStore
from gateway.apis.openai.responses.answer import ItemList
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.items import Item
from gateway.apis.openai.responses.references import EncodedInput, referenced, resolve
from gateway.apis.openai.responses.store.pages import (
    INCLUDE_PARAMETER,
    PAGE_PARAMETERS,
    ItemPage,
    check_include,
    item_list,
    read_page,
)
from gateway.apis.openai.responses.store.store import ResponseStore


class ConversationsEndpoints:
    """Handlers of conversations. Each caller has its own, and those of others look unknown."""

    def __init__(self, conversations: ConversationStore, responses: ResponseStore) -> None:
        self._conversations = conversations
        self._responses = responses

    async def create(self, call: Call[NewConversation]) -> JsonReply[Conversation]:
        """Create a conversation with its first items."""
        owner, asked = call.caller.credentials, call.prepared
        items = await self._resolved(owner, asked.items)
        return JsonReply(await self._conversations.create(owner, asked.metadata, items))

    async def get(self, call: Call[None]) -> JsonReply[Conversation]:
        """Return a conversation without its items."""
        return JsonReply(await self._conversations.get(*_named(call)))

    async def update(self, call: Call[dict[str, str]]) -> JsonReply[Conversation]:
        """Replace the metadata of a conversation."""
        return JsonReply(await self._conversations.set_metadata(*_named(call), call.prepared))

    async def delete(self, call: Call[None]) -> JsonReply[DeletedConversation]:
        """Delete a conversation. A response that continues it goes on, and its items are not kept here."""
        owner, conversation_id = _named(call)
        await self._conversations.delete(owner, conversation_id)
        return JsonReply({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    async def add(self, call: Call[EncodedInput]) -> JsonReply[ItemList]:
        """Add items to a conversation, and return them."""
        check_include(call.http.query_params)
        owner, conversation_id = _named(call)
        items = await self._resolved(owner, call.prepared)
        await self._conversations.add(owner, conversation_id, items)
        return JsonReply(item_list(ItemPage(items, has_more=False)))

    async def page(self, call: Call[None]) -> JsonReply[ItemList]:
        """Return a page of the items of a conversation."""
        page = read_page(call.http.query_params)
        return JsonReply(item_list(await self._conversations.page(*_named(call), page)))

    async def item(self, call: Call[None]) -> JsonReply[Item]:
        """Return one item of a conversation."""
        check_include(call.http.query_params)
        return JsonReply((await self._conversations.item(*_named(call), _item_id(call))).fragment())

    async def remove(self, call: Call[None]) -> JsonReply[Conversation]:
        """Remove one item from a conversation. Stored responses keep it."""
        return JsonReply(await self._conversations.remove(*_named(call), _item_id(call)))

    async def _resolved(self, owner: str, items: EncodedInput) -> list[EncodedItem]:
        return resolve(items, await self._responses.items(owner, referenced(items), PLACE), PLACE)


def _named(call: Call[Any]) -> tuple[str, str]:
    """Return the owner whose conversations the caller may use, and the id in the path."""
    return call.caller.credentials, call.http.path_params["id"]


def _item_id(call: Call[None]) -> str:
    item_id: str = call.http.path_params["item_id"]
    return item_id


def conversations_endpoints(conversations: ConversationStore, responses: ResponseStore) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of conversations. Items may refer to those of stored responses."""
    endpoints = ConversationsEndpoints(conversations, responses)
    return *_whole(endpoints), *_items(endpoints)


def _whole(endpoints: ConversationsEndpoints) -> tuple[AnyEndpoint, ...]:
    return (
        Endpoint(
            method="POST",
            path="/v1/conversations",
            id="createConversation",
            summary="Create a conversation, whose items responses read and add to.",
            body=ConversationBody,
            prepare=prepare_conversation,
            handler=endpoints.create,
            answer=Conversation,
            optional_body=True,
        ),
        BodilessEndpoint(
            method="GET",
            path="/v1/conversations/{id}",
            id="getConversation",
            summary="Get a conversation without its items.",
            handler=endpoints.get,
            answer=Conversation,
            refusals=NOT_FOUND,
        ),
        Endpoint(
            method="POST",
            path="/v1/conversations/{id}",
            id="updateConversation",
            summary="Replace the metadata of a conversation.",
            body=MetadataBody,
            prepare=prepare_metadata,
            handler=endpoints.update,
            answer=Conversation,
            refusals=NOT_FOUND,
        ),
        BodilessEndpoint(
            method="DELETE",
            path="/v1/conversations/{id}",
            id="deleteConversation",
            summary="Delete a conversation with its items. Stored responses keep theirs.",
            handler=endpoints.delete,
            answer=DeletedConversation,
            refusals=NOT_FOUND,
        ),
    )


def _items(endpoints: ConversationsEndpoints) -> tuple[AnyEndpoint, ...]:
    return (
        Endpoint(
            method="POST",
            path="/v1/conversations/{id}/items",
            id="createConversationItems",
            summary="Add items to a conversation.",
            body=ItemsBody,
            prepare=prepare_items,
            handler=endpoints.add,
            answer=ItemList,
            query=(INCLUDE_PARAMETER,),
            refusals=NOT_FOUND,
        ),
        BodilessEndpoint(
            method="GET",
            path="/v1/conversations/{id}/items",
            id="listConversationItems",
            summary="List the items of a conversation.",
            handler=endpoints.page,
            answer=ItemList,
            query=PAGE_PARAMETERS,
            refusals=NOT_FOUND,
        ),
        BodilessEndpoint(
            method="GET",
            path="/v1/conversations/{id}/items/{item_id}",
            id="getConversationItem",
            summary="Get an item of a conversation.",
            handler=endpoints.item,
            answer=cast("type[Item]", Item),
            query=(INCLUDE_PARAMETER,),
            refusals=NOT_FOUND,
        ),
        BodilessEndpoint(
            method="DELETE",
            path="/v1/conversations/{id}/items/{item_id}",
            id="deleteConversationItem",
            summary="Remove an item from a conversation.",
            handler=endpoints.remove,
            answer=Conversation,
            refusals=NOT_FOUND,
        ),
    )
