"""Answers of `/v1/models`. They have OpenAI's fields and those of Anthropic and vLLM, whose clients ask this path."""

from collections.abc import Sequence
from datetime import UTC, datetime
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
    ftype: str
    kv_cells: Count
    kv_bytes: Count


class Model(JsonObject):
    """A served model.

    `type`, `display_name`, `created_at`, `lifecycle` and `max_input_tokens` are Anthropic's. `root`, `parent` and
    `max_model_len` are vLLM's: the name without an adapter, and the tokens of the longest sequence, as in
    `max_input_tokens`.
    """

    id: str
    object: Literal["model"]
    type: Literal["model"]
    display_name: str
    created: Timestamp
    created_at: str
    lifecycle: Literal["active"]
    owned_by: str
    status: ModelStatus
    root: str
    parent: NotRequired[str]
    max_model_len: NotRequired[Count]
    max_input_tokens: NotRequired[Count]
    meta: NotRequired[ModelMeta]


class ModelList(JsonObject):
    """The served models. `has_more`, `first_id` and `last_id` are Anthropic's, for the only page."""

    object: Literal["list"]
    data: list[Model]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None


def model(one: served.Model) -> Model:
    """Return the model.

    A loaded model also has its context under the names of vLLM and Anthropic, and `meta` as in llama-server. One with a
    LoRA adapter has `parent`, the name of the model without it.
    """
    encoded: Model = {
        "id": one.name,
        "object": "model",
        "type": "model",
        "display_name": one.name,
        "created": one.created,
        "created_at": datetime.fromtimestamp(one.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "owned_by": "llama-gateway",
        "status": model_status(one.state, one.failure),
        "root": one.parent or one.name,
    }
    if one.parent is not None:
        encoded["parent"] = one.parent
    if (info := one.info) is not None:
        encoded["max_model_len"] = encoded["max_input_tokens"] = info.context
        encoded["meta"] = {
            "description": info.description,
            "n_vocab": info.vocabulary,
            "n_ctx": info.context,
            "n_ctx_train": info.trained_context,
            "n_embd": info.embedding_size,
            "n_params": info.parameters,
            "size": info.size,
            "ftype": info.file_type,
            "kv_cells": info.cells,
            "kv_bytes": info.cell_bytes,
        }
    return encoded


def model_list(models: Sequence[Model]) -> ModelList:
    """Return the list of models in their order."""
    first, last = (models[0]["id"], models[-1]["id"]) if models else (None, None)
    return {"object": "list", "data": [*models], "has_more": False, "first_id": first, "last_id": last}
