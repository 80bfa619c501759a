"""Descriptions of models, as Ollama's clients expect them."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from engine import ModelInfo
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.ollama.answer import timestamp
from gateway.apis.ollama.names import tagged
from gateway.serving.model import Model

_FOR_EVER = timedelta(days=100 * 365)
_UNITS = ((10**9, "B"), (10**6, "M"), (10**3, "K"))
_THINKING = ("enable_thinking", "reasoning_effort", "<think>", "reasoning_content")
"""Words in the templates of models that reason."""
_FILE_TYPES = {"Q2_K - Medium": "Q2_K", "IQ3_S mix - 3.66 bpw": "IQ3_M", "MXFP4 MoE": "MXFP4"}
"""File types by llama.cpp's words for them, where the names of files do not follow from these."""

Capability = Literal["completion", "tools", "insert", "thinking", "embedding"]


class Details(JsonObject):
    """Format, architecture and size of a model. What is unknown before it is loaded is empty."""

    parent_model: str
    format: Literal["gguf"]
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class ListedModel(JsonObject):
    """A model of the server."""

    name: str
    model: str
    modified_at: str
    size: Count
    digest: str
    details: Details


class RunningModel(JsonObject):
    """A model in memory. `size` is that of its weights, cells and buffers, and `size_vram` its part on GPUs."""

    name: str
    model: str
    size: Count
    digest: str
    details: Details
    expires_at: str
    size_vram: Count
    context_length: Count


class ShownModel(JsonObject):
    """A model with its template and the metadata of its file."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[Capability]
    modified_at: str


def listed(model: Model, size: int) -> ListedModel:
    """Return a model with the size of its file."""
    return {
        "name": tagged(model.name),
        "model": tagged(model.name),
        "modified_at": _modified_at(model),
        "size": size,
        "digest": _digest(model),
        "details": _details(model),
    }


def running(model: Model, info: ModelInfo) -> RunningModel:
    """Return a loaded model with what it takes."""
    left = model.source.idle_left
    expires_at = datetime.now(UTC) + (_FOR_EVER if left is None else timedelta(seconds=left))
    return {
        "name": tagged(model.name),
        "model": tagged(model.name),
        "size": info.host_buffers + info.gpu_memory,
        "digest": _digest(model),
        "details": _details(model),
        "expires_at": timestamp(expires_at),
        "size_vram": info.gpu_memory,
        "context_length": info.context,
    }


def shown(model: Model, header: Mapping[str, Any]) -> ShownModel:
    """Return a model with the metadata of its file, without loading it."""
    info = model.info
    return {
        "modelfile": f"FROM {model.name}\n",
        "parameters": "",
        "template": (info.chat_template if info else None) or "",
        "details": _details(model),
        "model_info": {**header, **({"general.parameter_count": info.parameters} if info else {})},
        "capabilities": _capabilities(info),
        "modified_at": _modified_at(model),
    }


def _details(model: Model) -> Details:
    info = model.info
    family = info.architecture if info else ""
    return {
        "parent_model": model.parent or "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": _parameter_size(info.parameters) if info else "",
        "quantization_level": _quantization(info.file_type) if info else "",
    }


def _quantization(file_type: str) -> str:
    """Return llama.cpp's words for the type of a file as files are named."""
    level = file_type.removeprefix("(guessed) ").removeprefix("all ")
    name, _, variant = level.partition(" - ")
    suffix = f"_{variant[0]}" if variant in {"Small", "Medium", "Large"} else ""
    return _FILE_TYPES.get(level, name + suffix)


def _parameter_size(parameters: int) -> str:
    unit, name = next((unit for unit in _UNITS if parameters >= unit[0]), (1, ""))
    return f"{parameters / unit:.3g}{name}"


def _capabilities(info: ModelInfo | None) -> list[Capability]:
    """Return what a model can do. Before it is loaded, it is thought to generate."""
    if info is None:
        return ["completion"]
    if not info.generates:
        return ["embedding"]
    capabilities: list[Capability] = ["completion"]
    if info.chat_template:
        capabilities.append("tools")
    if info.infills:
        capabilities.append("insert")
    if info.chat_template and any(word in info.chat_template for word in _THINKING):
        capabilities.append("thinking")
    return capabilities


def _modified_at(model: Model) -> str:
    return timestamp(datetime.fromtimestamp(model.created, UTC))


def _digest(model: Model) -> str:
    """Return an id of the model's file in the form of a SHA-256."""
    return hashlib.sha256(model.fingerprint.encode()).hexdigest()
