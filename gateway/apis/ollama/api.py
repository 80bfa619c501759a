"""Ollama's API."""

from gateway.apis.endpoint import Api
from gateway.apis.ollama.embeddings import embeddings_endpoints
from gateway.apis.ollama.endpoint import text_endpoints
from gateway.apis.ollama.errors import OllamaError, encode_error
from gateway.apis.ollama.models import models_endpoints
from gateway.serving.models import Models


def ollama_api(models: Models) -> Api:
    """Return Ollama's API."""
    endpoints = (*text_endpoints(models), *embeddings_endpoints(models), *models_endpoints(models))
    return Api(endpoints, encode_error, OllamaError)
