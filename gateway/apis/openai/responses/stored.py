"""Endpoints of stored and background responses: `/v1/responses/{id}`."""

from collections.abc import Sequence
from types import NoneType
from typing import Literal

from pydantic import Field

from engine import RequestError
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import AnyEndpoint, Call, Described, Endpoint, no_body
from gateway.apis.fields.nested import Nested, refusal
from gateway.apis.openai.responses.answer import Deleted, ItemList, Response
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.store import ResponseStore, not_found

_NOT_STORED = frozenset({404})
"""Refusals of an endpoint that takes the id of a response."""

_STREAM_PARAMETER: Described = {
    "name": "stream",
    "in": "query",
    "description": "A response is streamed only once, when it is created.",
    "schema": {"type": "boolean", "const": False, "default": False},
}
_PAGE_PARAMETERS: tuple[Described, ...] = (
    {
        "name": "limit",
        "in": "query",
        "description": "Maximum number of items.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    },
    {
        "name": "order",
        "in": "query",
        "description": "Order of the items: the first one first, or the last one first.",
        "schema": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    },
    {
        "name": "after",
        "in": "query",
        "description": "Id of an item of the list. The page begins after it.",
        "schema": {"type": "string"},
    },
)


class Page(Nested):
    """Query parameters of a page of items."""

    limit: int = Field(20, ge=1, le=100, strict=False)
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


class StoredResponsesEndpoints:
    """Handlers that look up responses by id."""

    def __init__(self, store: ResponseStore, background: BackgroundResponses) -> None:
        self._store = store
        self._background = background

    async def get(self, call: Call[None]) -> JsonReply[Response]:
        """Return a response in its current state. Raises `RequestError` for `stream`: events are streamed only once."""
        if call.http.query_params.get("stream", "false").lower() not in {"false", "0"}:
            raise refusal("stream", "is not supported here: a response is streamed once, where it is created")
        owner, response_id = _named(call)
        if (running := self._background.find(owner, response_id)) is not None:
            return JsonReply(running.answer.content().fragment())
        return JsonReply(self._store.get(owner, response_id).content.fragment())

    async def delete(self, call: Call[None]) -> JsonReply[Deleted]:
        """Delete a response. A running one is cancelled first. Later responses that follow it lose their history."""
        owner, response_id = _named(call)
        cancelled = await self._background.cancel(owner, response_id)
        removed = self._store.remove(owner, response_id)
        if not (cancelled or removed):
            raise not_found(response_id)
        return JsonReply({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, call: Call[None]) -> JsonReply[Response]:
        """Cancel a background response. Waits until its sequence is freed. May be repeated."""
        owner, response_id = _named(call)
        if (running := self._background.find(owner, response_id)) is not None:
            await self._background.cancel(owner, response_id)
            return JsonReply(running.answer.content().fragment())
        stored = self._store.get(owner, response_id)
        if not stored.background:
            message = "Only a response that runs in the background can be cancelled."
            raise RequestError(message, code="not_in_background")
        return JsonReply(stored.content.fragment())

    async def list_inputs(self, call: Call[None]) -> JsonReply[ItemList]:
        """Return a page of the input items of the response's own request."""
        page = Page.model_validate(dict(call.http.query_params))
        return JsonReply(_page(self._inputs(*_named(call)), page))

    def _inputs(self, owner: str, response_id: str) -> Sequence[EncodedItem]:
        if (running := self._background.find(owner, response_id)) is not None:
            return running.inputs
        return self._store.get(owner, response_id).inputs


def _named(call: Call[None]) -> tuple[str, str]:
    """Return the owner whose responses the caller may see, and the id in the path."""
    return call.caller.credentials, call.http.path_params["id"]


def _page(items: Sequence[EncodedItem], page: Page) -> ItemList:
    ordered = items if page.order == "asc" else items[::-1]
    if page.after is not None:
        places = [at for at, item in enumerate(ordered) if item.id == page.after]
        if not places:
            raise refusal("after", "should be the id of one of the items")
        ordered = ordered[places[0] + 1 :]
    shown = ordered[: page.limit]
    first, last = (shown[0].id, shown[-1].id) if shown else ("", "")
    return {
        "object": "list",
        "data": [item.fragment() for item in shown],
        "has_more": len(shown) < len(ordered),
        "first_id": first,
        "last_id": last,
    }


def stored_responses_endpoints(store: ResponseStore, background: BackgroundResponses) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of stored responses."""
    endpoints = StoredResponsesEndpoints(store, background)
    return (
        Endpoint(
            method="GET",
            path="/v1/responses/{id}",
            id="getResponse",
            summary="Get a response that is stored or runs in the background.",
            body=NoneType,
            prepare=no_body,
            handler=endpoints.get,
            answer=Response,
            query=(_STREAM_PARAMETER,),
            refusals=_NOT_STORED,
        ),
        Endpoint(
            method="DELETE",
            path="/v1/responses/{id}",
            id="deleteResponse",
            summary="Delete a response. A running one is cancelled first.",
            body=NoneType,
            prepare=no_body,
            handler=endpoints.delete,
            answer=Deleted,
            refusals=_NOT_STORED,
        ),
        Endpoint(
            method="POST",
            path="/v1/responses/{id}/cancel",
            id="cancelResponse",
            summary="Cancel a response that runs in the background.",
            body=NoneType,
            prepare=no_body,
            handler=endpoints.cancel,
            answer=Response,
            refusals=_NOT_STORED,
        ),
        Endpoint(
            method="GET",
            path="/v1/responses/{id}/input_items",
            id="listInputItems",
            summary="List the input items of a response's own request.",
            body=NoneType,
            prepare=no_body,
            handler=endpoints.list_inputs,
            answer=ItemList,
            query=_PAGE_PARAMETERS,
            refusals=_NOT_STORED,
        ),
    )
