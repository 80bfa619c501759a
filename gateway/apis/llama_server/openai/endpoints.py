"""Endpoints of OpenAI's routes as llama-server has them."""

from dataclasses import replace
from typing import Any

from gateway.apis.endpoint import AnyEndpoint, Api
from gateway.apis.llama_server.embeddings.endpoint import NativeEmbeddingsEndpoints
from gateway.apis.llama_server.embeddings.request import NativeEmbeddingBody, prepare_native_embedding
from gateway.apis.llama_server.errors import LlamaServerErrorAnswer, encode_error
from gateway.apis.llama_server.openai.chat import (
    LlamaChatBody,
    LlamaChatCompletion,
    LlamaChatEndpoints,
    prepare_llama_chat,
)
from gateway.apis.llama_server.openai.completions import LlamaCompletionBody, prepare_llama_completion
from gateway.serving.models import Models

_VERSION = "/v1"
_ALIASES = ("/chat/completions", "/chat/completions/input_tokens", "/responses", "/responses/input_tokens")
"""Paths without the version that are OpenAI's in llama-server. `/completions` and `/embeddings` are its own."""


def like_llama_server(openai: Api, models: Models, *, verbose: bool) -> Api:
    """Return OpenAI's API with llama-server's fields, limits and errors. Answers are `verbose` unasked, too, if set."""
    chat = LlamaChatEndpoints(models, verbose=verbose)
    changes: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {
            "body": LlamaChatBody,
            "prepare": prepare_llama_chat,
            "handler": chat.create,
            "answer": LlamaChatCompletion,
        },
        "/v1/chat/completions/input_tokens": {"body": LlamaChatBody, "prepare": prepare_llama_chat},
        "/v1/completions": {"body": LlamaCompletionBody, "prepare": prepare_llama_completion},
        "/v1/embeddings": {
            "body": NativeEmbeddingBody,
            "prepare": prepare_native_embedding,
            "handler": NativeEmbeddingsEndpoints(models).create_versioned,
        },
    }
    endpoints = (replace(one, **changes.get(one.path, {}), **_events(one)) for one in openai.endpoints)
    return Api(tuple(endpoints), encode_error, LlamaServerErrorAnswer)


def aliases(variant: Api) -> tuple[AnyEndpoint, ...]:
    """Return those of OpenAI's endpoints that llama-server also has without the version, by these paths."""
    named = ((endpoint, endpoint.path.removeprefix(_VERSION)) for endpoint in variant.endpoints)
    return tuple(
        replace(endpoint, path=path, id=f"{endpoint.id}Unversioned") for endpoint, path in named if path in _ALIASES
    )


def _events(endpoint: AnyEndpoint) -> dict[str, Any]:
    return {} if endpoint.events is None else {"events": endpoint.events | LlamaServerErrorAnswer}
