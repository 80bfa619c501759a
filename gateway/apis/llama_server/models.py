"""Endpoints of llama-server's router: `/models`, `/models/load` and `/models/unload`."""

from typing import Literal

from engine import RequestError
from gateway.apis.answers.model_status import ModelStatus, model_status
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import JsonObject, Timestamp
from gateway.apis.endpoint import NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call, Endpoint
from gateway.apis.fields.base import Fields
from gateway.serving.model import Model
from gateway.serving.models import Models


class RouterModel(JsonObject):
    """A model of the server. Requests may use any of `aliases`."""

    id: str
    aliases: list[str]
    tags: list[str]
    object: Literal["model"]
    created: Timestamp
    owned_by: str
    path: str
    status: ModelStatus


class RouterModels(JsonObject):
    """The models of the server."""

    object: Literal["list"]
    data: list[RouterModel]


class Ordered(JsonObject):
    """The order was accepted. `GET /models` has the state."""

    success: Literal[True]


class ModelBody(Fields):
    """The body of `POST /models/load` and `/models/unload`."""

    model: str


def prepare_name(body: ModelBody) -> str:
    """Return the name of the model in a body."""
    return body.model


class RouterEndpoints:
    """Handlers of the router's routes. They answer at once; models are loaded and unloaded after the answer."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list(self, call: Call[None]) -> JsonReply[RouterModels]:
        """Return the models that the caller may use, in any state."""
        data = [_encode(model) for model in self._models.allowed(call.caller)]
        return JsonReply({"object": "list", "data": data})

    async def load(self, call: Call[str]) -> JsonReply[Ordered]:
        """Load a model as soon as there is room, without a request for it. One that is to be unloaded stays."""
        model = self._models.find(call.caller, call.prepared)
        if not model.source.load() and model.state == "loaded":
            message = f"The model {model.name!r} is already running."
            raise RequestError(message, code="already_loaded", param="model")
        return JsonReply({"success": True})

    async def unload(self, call: Call[str]) -> JsonReply[Ordered]:
        """Unload a model once the requests that use it have ended."""
        model = self._models.find(call.caller, call.prepared)
        if model.state == "unloaded":
            raise RequestError(f"The model {model.name!r} is not running.", code="not_loaded", param="model")
        if not model.source.can_unload:
            message = f"The model {model.name!r} is loaded as long as this server runs."
            raise RequestError(message, code="cannot_unload", param="model")
        model.source.unload()
        return JsonReply({"success": True})


def _encode(model: Model) -> RouterModel:
    return {
        "id": model.name,
        "aliases": list(model.labels.aliases),
        "tags": list(model.labels.tags),
        "object": "model",
        "created": model.created,
        "owned_by": "llama-gateway",
        "path": str(model.place),
        "status": model_status(model.state, model.failure),
    }


def router_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of the router's routes."""
    endpoints = RouterEndpoints(models)
    listed = BodilessEndpoint(
        method="GET",
        path="/models",
        id="listRouterModels",
        summary="List the models with their files and states. Loads none.",
        handler=endpoints.list,
        answer=RouterModels,
    )
    load = Endpoint(
        method="POST",
        path="/models/load",
        id="loadModel",
        summary="Load a model as soon as there is room.",
        body=ModelBody,
        prepare=prepare_name,
        handler=endpoints.load,
        answer=Ordered,
        refusals=NOT_FOUND,
    )
    unload = Endpoint(
        method="POST",
        path="/models/unload",
        id="unloadModel",
        summary="Unload a model once the requests that use it have ended.",
        body=ModelBody,
        prepare=prepare_name,
        handler=endpoints.unload,
        answer=Ordered,
        refusals=NOT_FOUND,
    )
    return listed, load, unload
