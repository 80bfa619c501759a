"""Endpoints of OpenAI's list of models: `/v1/models`."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call
from gateway.apis.openai.models.answer import Model, ModelList, model, model_list
from gateway.serving.models import Models

_OVERLOADED = frozenset({529})
"""Status of a 503 for clients of Anthropic's API."""


class ModelsEndpoints:
    """Handlers for the list of models. Models in every state are listed, and none is loaded."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list(self, call: Call[None]) -> JsonReply[ModelList]:
        """Return the models that the caller may use."""
        return JsonReply(model_list([model(one) for one in self._models.allowed(call.caller)]))

    async def get(self, call: Call[None]) -> JsonReply[Model]:
        """Return one model. Any name that requests may use finds it."""
        return JsonReply(model(self._models.find(call.caller, call.http.path_params["id"])))


def models_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of the list of models."""
    endpoints = ModelsEndpoints(models)
    every = BodilessEndpoint(
        method="GET",
        path="/v1/models",
        id="listModels",
        summary="List the served models.",
        handler=endpoints.list,
        answer=ModelList,
        refusals=_OVERLOADED,
        shared=True,
    )
    one = BodilessEndpoint(
        method="GET",
        path="/v1/models/{id:path}",
        id="retrieveModel",
        summary="Get a model by any name that requests may use.",
        handler=endpoints.get,
        answer=Model,
        refusals=NOT_FOUND | _OVERLOADED,
        shared=True,
    )
    return every, one
