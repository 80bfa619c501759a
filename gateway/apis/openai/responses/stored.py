"""`/v1/responses/{id}`: responses that were stored, and those that run in the background."""

from http import HTTPStatus
from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from engine import RequestError
from gateway.apis.answers.reply import json_reply
from gateway.apis.fields.nested import Nested, refusal
from gateway.apis.openai.responses.answer import Deleted, ItemList
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.items import Item
from gateway.apis.openai.responses.store import ResponseStore


class Page(Nested):
    """Which items a list is to have, and in which order."""

    limit: int = Field(20, ge=1, le=100, strict=False)
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


class StoredResponses:
    """Looks responses up by their ids."""

    def __init__(self, store: ResponseStore, background: BackgroundResponses) -> None:
        self._store = store
        self._background = background

    async def serve(self, http: Request) -> Response:
        """`GET` and `DELETE`: one route, so that what is refused there is told of both."""
        return await (self.delete(http) if http.method == "DELETE" else self.get(http))

    async def get(self, http: Request) -> Response:
        """`GET`: a response as it is now. Its events cannot be streamed again: that is a 400."""
        if http.query_params.get("stream", "false").lower() not in {"false", "0"}:
            raise refusal("stream", "is not supported here: a response is streamed once, where it is created")
        if (running := self._background.find(http.path_params["id"])) is not None:
            return json_reply(running.answer.content())
        return _json(self._store.get(http.path_params["id"]).response)

    async def delete(self, http: Request) -> Response:
        """`DELETE`: forget a response. One that runs is cancelled first; what follows it has then lost its history."""
        response_id = http.path_params["id"]
        await self._background.cancel(response_id)
        self._store.remove(response_id)
        return json_reply(_deleted(response_id))

    async def cancel(self, http: Request) -> Response:
        """`POST …/cancel`: end what runs in the background. Waits until its sequence is freed; may be repeated."""
        response_id = http.path_params["id"]
        if (running := self._background.find(response_id)) is not None:
            await self._background.cancel(response_id)
            return json_reply(running.answer.content())
        stored = self._store.get(response_id)
        if not stored.background:
            message = "Only a response that runs in the background can be cancelled."
            raise RequestError(message, code="not_in_background")
        return _json(stored.response)

    async def list_inputs(self, http: Request) -> Response:
        """`GET …/input_items`: the items of its own request, a page of them."""
        page = Page.model_validate(dict(http.query_params))
        return json_reply(_page(self._inputs(http.path_params["id"]), page))

    def _inputs(self, response_id: str) -> list[Item]:
        if (running := self._background.find(response_id)) is not None:
            return running.inputs
        return self._store.get(response_id).inputs


def _page(items: list[Item], page: Page) -> ItemList:
    ordered = items if page.order == "asc" else items[::-1]
    if page.after is not None:
        places = [at for at, item in enumerate(ordered) if item["id"] == page.after]
        if not places:
            raise refusal("after", "should be the id of one of the items")
        ordered = ordered[places[0] + 1 :]
    shown = ordered[: page.limit]
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else ("", "")
    more = len(shown) < len(ordered)
    return {"object": "list", "data": shown, "has_more": more, "first_id": first, "last_id": last}


def _deleted(response_id: str) -> Deleted:
    return {"id": response_id, "object": "response", "deleted": True}


def _json(content: bytes) -> Response:
    return Response(content, HTTPStatus.OK, media_type="application/json")
