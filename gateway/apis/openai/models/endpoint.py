"""`GET /v1/models`: the served models, and the names for them."""

from types import NoneType

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import NO_SUCH_MODEL, AnyEndpoint, Call, Endpoint
from gateway.apis.others import Model, ModelList
from gateway.serving.models import Models, Served


class ListModels:
    """Lists models, whatever their state."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list(self, _call: Call[None]) -> JsonReply[ModelList]:
        """Answer every model."""
        return JsonReply({"object": "list", "data": [encode(served) for served in self._models.all]})

    async def get(self, call: Call[None]) -> JsonReply[Model]:
        """Answer one model, by any name that requests may use."""
        return JsonReply(encode(self._models.find(call.http.path_params["id"])))


def encode(served: Served) -> Model:
    """Return the model as OpenAI lists it, and with what llama-server adds once it is loaded."""
    encoded: Model = {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "llama-gateway",
    }
    if (model := served.engine.model) is not None:
        encoded["meta"] = {
            "description": model.description,
            "n_vocab": model.vocabulary,
            "n_ctx": model.context,
            "n_ctx_train": model.trained_context,
            "n_embd": model.embedding_size,
            "n_params": model.parameters,
            "size": model.size,
        }
    return encoded


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
