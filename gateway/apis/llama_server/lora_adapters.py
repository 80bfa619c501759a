"""Endpoint `/lora-adapters`: the LoRA adapters of a model, and their scales for requests that choose none."""

from typing import Literal

from pydantic import Field, RootModel, field_validator

from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.endpoint import MODEL_PARAMETER, NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call, Endpoint
from gateway.apis.fields.sampling import MAX_ADAPTERS, AdapterScale, each_once
from gateway.serving.model import Model
from gateway.serving.models import Models


class LoraAdapter(JsonObject):
    """A LoRA adapter. `model` is its name as a model, and `path` the name of its file."""

    id: Count
    path: str
    scale: float
    model: str


class ScalesChanged(JsonObject):
    """Answer to a change."""

    success: Literal[True]


class AdapterScales(RootModel[list[AdapterScale]]):
    """Scales of LoRA adapters, as in llama-server."""

    root: list[AdapterScale] = Field(max_length=MAX_ADAPTERS)

    _once = field_validator("root")(each_once)


def prepare_scales(body: AdapterScales) -> tuple[tuple[int, float], ...]:
    """Return the ids and scales in a body."""
    return tuple((one.id, one.scale) for one in body.root)


class LoraAdaptersEndpoints:
    """Handlers for the adapters of the model in the query, otherwise of the default model."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list(self, call: Call[None]) -> JsonReply[list[LoraAdapter]]:
        """Return the adapters that the caller may use, each with its scale for requests that choose none."""
        model = self._model(call)
        return JsonReply(
            [
                {
                    "id": one.id,
                    "path": one.file.name,
                    "scale": model.adapters.default(one),
                    "model": one.name_with(model.name),
                }
                for one in model.adapters.allowed(call.caller)
            ]
        )

    async def change(self, call: Call[tuple[tuple[int, float], ...]]) -> JsonReply[ScalesChanged]:
        """Replace the scales for requests that choose no adapters. Adapters that are not in the body get 0."""
        self._model(call).adapters.set_defaults(call.caller, call.prepared)
        return JsonReply({"success": True})

    def _model(self, call: Call[None] | Call[tuple[tuple[int, float], ...]]) -> Model:
        return self._models.find(call.caller, call.http.query_params.get("model"))


def lora_adapters_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of LoRA adapters."""
    endpoints = LoraAdaptersEndpoints(models)
    every = BodilessEndpoint(
        method="GET",
        path="/lora-adapters",
        id="listLoraAdapters",
        summary="List the LoRA adapters of a model.",
        handler=endpoints.list,
        answer=list[LoraAdapter],
        query=(MODEL_PARAMETER,),
        refusals=NOT_FOUND,
    )
    change = Endpoint(
        method="POST",
        path="/lora-adapters",
        id="setLoraAdapters",
        summary="Set the scales of the LoRA adapters for requests that choose none.",
        body=AdapterScales,
        prepare=prepare_scales,
        handler=endpoints.change,
        answer=ScalesChanged,
        query=(MODEL_PARAMETER,),
        refusals=NOT_FOUND,
    )
    return every, change
