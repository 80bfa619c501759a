"""The APIs of re-ranking."""

from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import Api
from gateway.apis.llama_server.errors import LlamaServerErrorAnswer
from gateway.apis.llama_server.errors import encode_error as encode_llama_error
from gateway.apis.rerank.answer import CohereError, cohere_error
from gateway.apis.rerank.endpoint import cohere_endpoints, rerank_endpoints
from gateway.middleware.errors import encode_error
from gateway.serving.models import Models


def rerank_api(models: Models, *, like_llama_server: bool) -> Api:
    """Return the routes in the shapes of Jina, llama-server and TEI. Their errors have OpenAI's shape by default."""
    endpoints = rerank_endpoints(models, raw=like_llama_server)
    if like_llama_server:
        return Api(endpoints, encode_llama_error, LlamaServerErrorAnswer)
    return Api(endpoints, encode_error, ErrorAnswer)


def cohere_api(models: Models) -> Api:
    """Return Cohere's route, with its errors."""
    return Api(cohere_endpoints(models), cohere_error, CohereError)
