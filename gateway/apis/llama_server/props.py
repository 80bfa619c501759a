"""Endpoint `/props`: properties of the server and of a model, with llama-server's field names."""

from typing import Any, Literal

from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.endpoint import MODEL_PARAMETER, NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call, Endpoint
from gateway.apis.fields.base import Fields
from gateway.apis.llama_server.completion.request import NativeCompletionBody
from gateway.apis.llama_server.generation_settings import GenerationSettings, generation_settings
from gateway.apis.llama_server.options import NOT_ALLOWED, RouteOptions, refused
from gateway.serving.models import Models
from gateway.serving.served import Served


class DefaultSettings(JsonObject):
    """Settings of a `/completion` request that sets nothing, and the tokens of a slot."""

    params: GenerationSettings
    n_ctx: Count


class Modalities(JsonObject):
    """Kinds of input besides text."""

    vision: Literal[False]
    video: Literal[False]
    audio: Literal[False]


class Props(JsonObject):
    """Properties of the server and of a model. `model_ftype` is the quantisation of its file, as llama.cpp calls it.

    `is_sleeping` is true of a model that was unloaded. The next request loads it again.
    """

    default_generation_settings: DefaultSettings
    total_slots: Count
    model_alias: str
    model_ftype: str
    model_path: str
    modalities: Modalities
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    ui: Literal[False]
    ui_settings: dict[str, Any]
    cors_proxy_enabled: Literal[False]
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool


class PropsAccepted(JsonObject):
    """Answer to a change."""

    success: Literal[True]


class PropsBody(Fields):
    """The body of `POST /props`. No property can be changed, as in llama-server."""


def prepare_props(_body: PropsBody) -> None:
    """Return None: no property can be changed."""


class PropsEndpoints:
    """Handlers for the properties of the model in the query, otherwise of the default model."""

    def __init__(self, models: Models, options: RouteOptions, *, metrics: bool) -> None:
        """Create the handlers.

        Args:
            models: The models.
            options: The operator's choice of routes.
            metrics: True if this port has `/metrics`.
        """
        self._models = models
        self._options = options
        self._metrics = metrics

    async def get(self, call: Call[None]) -> JsonReply[Props]:
        """Return the properties. Raises `Unavailable` until the model was loaded for the first time."""
        model = self._models.find(call.caller, call.http.query_params.get("model"))
        served = model.latest()
        info = served.loaded
        return JsonReply(
            {
                "default_generation_settings": {"params": _defaults(served), "n_ctx": info.context},
                "total_slots": info.slots,
                "model_alias": served.name,
                "model_ftype": info.file_type,
                "model_path": str(model.place),
                "modalities": {"vision": False, "video": False, "audio": False},
                "endpoint_slots": self._options.slots,
                "endpoint_props": self._options.props,
                "endpoint_metrics": self._metrics and self._options.metrics,
                "ui": False,
                "ui_settings": {},
                "cors_proxy_enabled": False,
                "chat_template": served.prompts.source(info),
                "bos_token": info.bos,
                "eos_token": info.eos,
                "build_info": self._options.build,
                "is_sleeping": model.state == "unloaded",
            }
        )

    async def change(self, _call: Call[None]) -> JsonReply[PropsAccepted]:
        """Return success, as llama-server does, which changes nothing either."""
        if not self._options.props:
            raise refused("changing global properties", "with `--props`")
        return JsonReply({"success": True})


def _defaults(served: Served) -> GenerationSettings:
    request = NativeCompletionBody.model_validate({"prompt": ""}).request()
    return generation_settings(served.generations.with_defaults(request), served.loaded.end_tokens)


def props_endpoints(models: Models, options: RouteOptions, *, metrics: bool) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of `/props`."""
    endpoints = PropsEndpoints(models, options, metrics=metrics)
    get = BodilessEndpoint(
        method="GET",
        path="/props",
        id="getProps",
        summary="Get the properties of the server and of a loaded model.",
        handler=endpoints.get,
        answer=Props,
        query=(MODEL_PARAMETER,),
        refusals=NOT_FOUND,
    )
    change = Endpoint(
        method="POST",
        path="/props",
        id="setProps",
        summary="Accept a change of properties, if `--props` allows it. Nothing changes.",
        body=PropsBody,
        prepare=prepare_props,
        handler=endpoints.change,
        answer=PropsAccepted,
        refusals=NOT_ALLOWED,
    )
    return get, change
