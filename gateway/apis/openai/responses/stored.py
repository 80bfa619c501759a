"""`/v1/responses/{id}`: responses that were stored, and those that run in the background."""

from typing import Literal

from pydantic import Field

from engine import RequestError
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import Call
from gateway.apis.fields.nested import Nested, refusal
from gateway.apis.openai.responses.answer import Deleted, ItemList, Response
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

    async def get(self, call: Call[None]) -> JsonReply[Response]:
        """Answer a response as it is now. Its events cannot be streamed again: that is a 400."""
        http = call.http
        if http.query_params.get("stream", "false").lower() not in {"false", "0"}:
            raise refusal("stream", "is not supported here: a response is streamed once, where it is created")
        if (running := self._background.find(http.path_params["id"])) is not None:
            return JsonReply(running.answer.content())
        return JsonReply.encoded(self._store.get(http.path_params["id"]).response)

    async def delete(self, call: Call[None]) -> JsonReply[Deleted]:
        """Forget a response. One that runs is cancelled first; what follows it has then lost its history."""
        response_id: str = call.http.path_params["id"]
        await self._background.cancel(response_id)
        self._store.remove(response_id)
        return JsonReply({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, call: Call[None]) -> JsonReply[Response]:
        """End what runs in the background. Waits until its sequence is freed; may be repeated."""
        response_id = call.http.path_params["id"]
        if (running := self._background.find(response_id)) is not None:
            await self._background.cancel(response_id)
            return JsonReply(running.answer.content())
        stored = self._store.get(response_id)
        if not stored.background:
            message = "Only a response that runs in the background can be cancelled."
            raise RequestError(message, code="not_in_background")
        return JsonReply.encoded(stored.response)

    async def list_inputs(self, call: Call[None]) -> JsonReply[ItemList]:
        """Answer a page of the items of the response's own request."""
        page = Page.model_validate(dict(call.http.query_params))
        return JsonReply(_page(self._inputs(call.http.path_params["id"]), page))

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
