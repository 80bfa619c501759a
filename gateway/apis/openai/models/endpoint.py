"""`GET /v1/models`: the served models, and the names for them."""

from types import NoneType

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import NO_SUCH_MODEL, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.models.answer import Model, ModelList, model, model_list
from gateway.serving.models import Models, Served


class ListModels:
    """Lists models, whatever their state."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list(self, _call: Call[None]) -> JsonReply[ModelList]:
        """Answer every model."""
        return JsonReply(model_list(_encode(served) for served in self._models.all))

    async def get(self, call: Call[None]) -> JsonReply[Model]:
        """Answer one model, by any name that requests may use."""
        return JsonReply(_encode(self._models.find(call.http.path_params["id"])))


def _encode(served: Served) -> Model:
    return model(served.name, served.created, served.engine.model)


def models_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of the list of models."""
    listed = ListModels(models)
    every = Endpoint(
        method="GET",
        path="/v1/models",
        id="listModels",
        summary="The models that are served.",
        handler=listed.list,
        body=NoneType,
        answer=ModelList,
    )
    one = Endpoint(
        method="GET",
        path="/v1/models/{id:path}",
        id="retrieveModel",
        summary="A model, by any name that requests may use.",
        handler=listed.get,
        body=NoneType,
        answer=Model,
        refusals=NO_SUCH_MODEL,
    )
    return every, one
