"""Ollama's API."""

from gateway.apis.endpoint import Api
from gateway.apis.ollama.embeddings import embeddings_endpoints
from gateway.apis.ollama.endpoint import text_endpoints
from gateway.apis.ollama.errors import OllamaError, encode_error
from gateway.apis.ollama.models import models_endpoints
from gateway.apis.ollama.pulling import pulling_endpoints
from gateway.apis.ollama.refused import refused_endpoints
from gateway.pulls.pulls import Pulls
from gateway.serving.models import Models


def ollama_api(models: Models, pulls: Pulls | None) -> Api:
    """Return Ollama's API. Without `pulls`, clients may neither pull nor delete models."""
    endpoints = (
        *text_endpoints(models),
        *embeddings_endpoints(models),
        *models_endpoints(models),
        *pulling_endpoints(models, pulls),
        *refused_endpoints(),
    )
    return Api(endpoints, encode_error, OllamaError)
