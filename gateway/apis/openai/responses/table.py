"""The endpoints of responses."""

from types import NoneType

from gateway.apis.answers.input_tokens import InputTokens
from gateway.apis.endpoint import NO_SUCH_MODEL, QUEUED, AnyEndpoint, Described, Endpoint
from gateway.apis.openai.responses.answer import Deleted, ItemList, Response
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.endpoint import Responses
from gateway.apis.openai.responses.events import ResponseEvent
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.openai.responses.store import ResponseStore
from gateway.apis.openai.responses.stored import StoredResponses
from gateway.serving.models import Models

NOT_STORED = frozenset({404})

_WHOLE: Described = {
    "name": "stream",
    "in": "query",
    "description": "A response is streamed once, where it is created.",
    "schema": {"type": "boolean", "const": False, "default": False},
}
_PAGE: tuple[Described, ...] = (
    {
        "name": "limit",
        "in": "query",
        "description": "The most items to list.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    },
    {
        "name": "order",
        "in": "query",
        "description": "The first item first, or the last.",
        "schema": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    },
    {
        "name": "after",
        "in": "query",
        "description": "The id of an item of the list, behind which the page begins.",
        "schema": {"type": "string"},
    },
)


def responses_endpoints(
    models: Models, store: ResponseStore, background: BackgroundResponses
) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of responses."""
    responses = Responses(models, store, background)
    return (
        Endpoint(
            method="POST",
            path="/v1/responses",
            id="createResponse",
            summary="Continue a conversation, that of a stored response perhaps.",
            handler=responses.create,
            body=ResponseBody,
            answer=Response,
            events=ResponseEvent,
            ends_with_done=False,
            refusals=QUEUED,
        ),
        Endpoint(
            method="POST",
            path="/v1/responses/input_tokens",
            id="getinputtokencounts",
            summary="Count the tokens of an input, and generate nothing.",
            handler=responses.count,
            body=ResponseBody,
            answer=InputTokens,
            refusals=NO_SUCH_MODEL,
        ),
        *_stored_endpoints(StoredResponses(store, background)),
    )


def _stored_endpoints(stored: StoredResponses) -> tuple[AnyEndpoint, ...]:
    return (
        Endpoint(
            method="GET",
            path="/v1/responses/{id}",
            id="getResponse",
            summary="A response that is stored or runs in the background.",
            handler=stored.get,
            body=NoneType,
            answer=Response,
            query=(_WHOLE,),
            refusals=NOT_STORED,
        ),
        Endpoint(
            method="DELETE",
            path="/v1/responses/{id}",
            id="deleteResponse",
            summary="Forget a response; one that runs is cancelled first.",
            handler=stored.delete,
            body=NoneType,
            answer=Deleted,
            refusals=NOT_STORED,
        ),
        Endpoint(
            method="POST",
            path="/v1/responses/{id}/cancel",
            id="cancelResponse",
            summary="End a response that runs in the background.",
            handler=stored.cancel,
            body=NoneType,
            answer=Response,
            refusals=NOT_STORED,
        ),
        Endpoint(
            method="GET",
            path="/v1/responses/{id}/input_items",
            id="listInputItems",
            summary="The items of a response's own request.",
            handler=stored.list_inputs,
            body=NoneType,
            answer=ItemList,
            query=_PAGE,
            refusals=NOT_STORED,
        ),
    )
