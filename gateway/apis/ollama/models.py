"""Endpoints of Ollama's models: lists, description, version."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio.to_thread
from pydantic import Field

from engine.gguf.header import read_header
from engine.gguf.split_file import bytes_of
from gateway.apis.answers.reply import JsonReply, TextReply
from gateway.apis.answers.shapes import JsonObject
from gateway.apis.endpoint import NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call, Endpoint
from gateway.apis.fields.base import Fields
from gateway.apis.ollama.description import ListedModel, RunningModel, ShownModel, listed, running, shown
from gateway.serving.models import Models

VERSION = "0.13.4"
"""Version of Ollama whose API this is. Clients refuse a server that is too old for them."""


class ListedModels(JsonObject):
    """The models of the server."""

    models: list[ListedModel]


class RunningModels(JsonObject):
    """The models in memory."""

    models: list[RunningModel]


class Version(JsonObject):
    """Version of the API."""

    version: str


class ShowBody(Fields):
    """The body of a request for a description. Older clients write `name`, and some the other one as an empty text."""

    model: str | None = None
    name: str | None = None
    verbose: bool = Field(False, description="Has no effect.")


def prepare_show(body: ShowBody) -> str:
    """Return the name of the model in a body; the default model's without one."""
    return body.model or body.name or "default"


class ModelsEndpoints:
    """Handlers for models. None is loaded."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list(self, call: Call[None]) -> JsonReply[ListedModels]:
        """Return the models that the caller may use, in any state."""
        allowed = self._models.allowed(call.caller)
        sizes = await anyio.to_thread.run_sync(lambda: [_size(model.file) for model in allowed])
        return JsonReply({"models": [listed(model, size) for model, size in zip(allowed, sizes, strict=True)]})

    async def running(self, call: Call[None]) -> JsonReply[RunningModels]:
        """Return the models in memory that the caller may use."""
        loaded = ((model, model.info) for model in self._models.allowed(call.caller) if model.parent is None)
        return JsonReply({"models": [running(model, info) for model, info in loaded if info is not None]})

    async def show(self, call: Call[str]) -> JsonReply[ShownModel]:
        """Return the description of a model."""
        model = self._models.find(call.caller, call.prepared)
        return JsonReply(shown(model, await anyio.to_thread.run_sync(_header, model.file)))

    async def version(self, _call: Call[None]) -> JsonReply[Version]:
        """Return the version of the API."""
        return JsonReply({"version": VERSION})

    async def root(self, _call: Call[None]) -> TextReply:
        """Return what Ollama's clients look for to find a server."""
        return TextReply("Ollama is running", media_type="text/plain")


def _size(file: Path | None) -> int:
    if file is not None:
        with suppress(OSError):
            return bytes_of(file)
    return 0


def _header(file: Path | None) -> dict[str, Any]:
    """Return the metadata of a file, without that of the vocabulary."""
    if file is not None:
        with suppress(OSError, ValueError):
            return dict(read_header(file))
    return {}


def models_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of models."""
    endpoints = ModelsEndpoints(models)
    tags = BodilessEndpoint(
        method="GET",
        path="/api/tags",
        id="ollamaTags",
        summary="List the models, in Ollama's shape.",
        handler=endpoints.list,
        answer=ListedModels,
    )
    ps = BodilessEndpoint(
        method="GET",
        path="/api/ps",
        id="ollamaRunning",
        summary="List the models in memory, in Ollama's shape.",
        handler=endpoints.running,
        answer=RunningModels,
    )
    show = Endpoint(
        method="POST",
        path="/api/show",
        id="ollamaShow",
        summary="Describe a model, in Ollama's shape. Does not load it.",
        body=ShowBody,
        prepare=prepare_show,
        handler=endpoints.show,
        answer=ShownModel,
        refusals=NOT_FOUND,
    )
    return tags, ps, show, *_server_endpoints(endpoints)


def _server_endpoints(endpoints: ModelsEndpoints) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints by which clients find the server and its version."""
    version = BodilessEndpoint(
        method="GET",
        path="/api/version",
        id="ollamaVersion",
        summary="Get the version of Ollama's API.",
        handler=endpoints.version,
        answer=Version,
    )
    root = BodilessEndpoint(
        method="GET",
        path="/",
        id="ollamaRoot",
        summary="Answer clients that look for Ollama.",
        handler=endpoints.root,
        answer=str,
        media=("text/plain",),
    )
    return version, root
