"""Answers of `/v1/models`."""

from collections.abc import Iterable
from typing import Literal, NotRequired

from gateway.apis.answers.model_status import ModelStatus, model_status
from gateway.apis.answers.shapes import Count, JsonObject, Timestamp
from gateway.serving import model as served


class ModelMeta(JsonObject):
    """Properties of a loaded model, with llama-server's field names.

    `kv_cells` are the tokens that the KV cache holds for all slots together, and `kv_bytes` the bytes of each.
    """

    description: str
    n_vocab: Count
    n_ctx: Count
    n_ctx_train: Count
    n_embd: Count
    n_params: Count
    size: Count
    kv_cells: Count
    kv_bytes: Count


class Model(JsonObject):
    """A served model."""

    id: str
    object: Literal["model"]
    created: Timestamp
    owned_by: str
    status: ModelStatus
    parent: NotRequired[str]
    meta: NotRequired[ModelMeta]


class ModelList(JsonObject):
    """The served models."""

    object: Literal["list"]
    data: list[Model]


def model(one: served.Model) -> Model:
    """Return the model in OpenAI's format.

    A loaded model also has `meta`, as in llama-server. One with a LoRA adapter has `parent`, the name of the model
    without it, as in vLLM.
    """
    encoded: Model = {
        "id": one.name,
        "object": "model",
        "created": one.created,
        "owned_by": "llama-gateway",
        "status": model_status(one.state, one.failure),
    }
    if one.parent is not None:
        encoded["parent"] = one.parent
    if (info := one.info) is not None:
        encoded["meta"] = {
            "description": info.description,
            "n_vocab": info.vocabulary,
            "n_ctx": info.context,
            "n_ctx_train": info.trained_context,
            "n_embd": info.embedding_size,
            "n_params": info.parameters,
            "size": info.size,
            "kv_cells": info.cells,
            "kv_bytes": info.cell_bytes,
        }
    return encoded


def model_list(models: Iterable[Model]) -> ModelList:
    """Return the list of models in their order."""
    return {"object": "list", "data": list(models)}
