"""Endpoints of stored and background responses: `/v1/responses/{id}`."""

from collections.abc import Sequence

from engine import RequestError
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call, Described
from gateway.apis.fields.nested import refusal
from gateway.apis.openai.responses.answer import Deleted, ItemList, Response
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.pages import (
    INCLUDE_PARAMETER,
    PAGE_PARAMETERS,
    check_include,
    item_list,
    page_of,
    read_page,
)
from gateway.apis.openai.responses.store.store import ResponseStore, not_found

_STREAM_PARAMETER: Described = {
    "name": "stream",
    "in": "query",
    "description": "A response is streamed only once, when it is created.",
    "schema": {"type": "boolean", "const": False, "default": False},
}


class StoredResponsesEndpoints:
    """Handlers that look up responses by id."""

    def __init__(self, store: ResponseStore, background: BackgroundResponses) -> None:
        self._store = store
        self._background = background

    async def get(self, call: Call[None]) -> JsonReply[Response]:
        """Return a response in its current state.

        Raises `RequestError` for `stream` and `starting_after`, because events are streamed only once.
        """
        query = call.http.query_params
        check_include(query)
        streams = query.get("stream", "false").lower() not in {"false", "0"}
        if streams or "starting_after" in query:
            reason = "is not supported here: a response is streamed once, where it is created"
            raise refusal("stream" if streams else "starting_after", reason)
        owner, response_id = _named(call)
        if (running := await self._background.find(owner, response_id)) is not None:
            return JsonReply(running.answer.content().fragment())
        return JsonReply((await self._store.get(owner, response_id)).content.fragment())

    async def delete(self, call: Call[None]) -> JsonReply[Deleted]:
        """Delete a response. A running one is cancelled first. Later responses that follow it lose their history."""
        owner, response_id = _named(call)
        cancelled = await self._background.cancel(owner, response_id)
        removed = await self._store.remove(owner, response_id)
        if not (cancelled or removed):
            raise not_found(response_id)
        return JsonReply({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, call: Call[None]) -> JsonReply[Response]:
        """Cancel a background response. Waits until its sequence is freed. May be repeated."""
        owner, response_id = _named(call)
        if (running := await self._background.find(owner, response_id)) is not None:
            await self._background.cancel(owner, response_id)
            return JsonReply(running.answer.content().fragment())
        if not (await self._store.get(owner, response_id)).background:
            message = "Only a response that runs in the background can be cancelled."
            raise RequestError(message, code="not_in_background")
        return JsonReply((await self._store.cancel(owner, response_id)).content.fragment())

    async def list_inputs(self, call: Call[None]) -> JsonReply[ItemList]:
        """Return a page of the input items of the response's own request."""
        page = read_page(call.http.query_params)
        return JsonReply(item_list(page_of(await self._inputs(*_named(call)), page)))

    async def _inputs(self, owner: str, response_id: str) -> Sequence[EncodedItem]:
        if (running := await self._background.find(owner, response_id)) is not None:
            return running.inputs
        return (await self._store.get(owner, response_id)).inputs


def _named(call: Call[None]) -> tuple[str, str]:
    """Return the owner whose responses the caller may see, and the id in the path."""
    return call.caller.credentials, call.http.path_params["id"]


def stored_responses_endpoints(store: ResponseStore, background: BackgroundResponses) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of stored responses."""
    endpoints = StoredResponsesEndpoints(store, background)
    return (
        BodilessEndpoint(
            method="GET",
            path="/v1/responses/{id}",
            id="getResponse",
            summary="Get a response that is stored or runs in the background.",
            handler=endpoints.get,
            answer=Response,
            query=(_STREAM_PARAMETER, INCLUDE_PARAMETER),
            refusals=NOT_FOUND,
        ),
        BodilessEndpoint(
            method="DELETE",
            path="/v1/responses/{id}",
            id="deleteResponse",
            summary="Delete a response. A running one is cancelled first.",
            handler=endpoints.delete,
            answer=Deleted,
            refusals=NOT_FOUND,
        ),
        BodilessEndpoint(
            method="POST",
            path="/v1/responses/{id}/cancel",
            id="cancelResponse",
            summary="Cancel a response that runs in the background.",
            handler=endpoints.cancel,
            answer=Response,
            refusals=NOT_FOUND,
        ),
        BodilessEndpoint(
            method="GET",
            path="/v1/responses/{id}/input_items",
            id="listInputItems",
            summary="List the input items of a response's own request.",
            handler=endpoints.list_inputs,
            answer=ItemList,
            query=PAGE_PARAMETERS,
            refusals=NOT_FOUND,
        ),
    )
