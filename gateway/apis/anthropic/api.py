"""Anthropic's API."""

from gateway.apis.anthropic.errors import AnthropicError, adapt_problem, encode_error
from gateway.apis.anthropic.headers import anthropic_headers
from gateway.apis.anthropic.messages.endpoint import messages_endpoints
from gateway.apis.anthropic.messages.permissive import permissive
from gateway.apis.endpoint import Api
from gateway.serving.models import Models


def anthropic_api(models: Models, *, like_llama_server: bool) -> Api:
    """Return Anthropic's API, with the bodies that Anthropic takes or also those that llama-server takes."""
    endpoints = messages_endpoints(models)
    if like_llama_server:
        endpoints = tuple(map(permissive, endpoints))
    return Api(
        endpoints,
        encode_error,
        AnthropicError,
        adapt_problem=adapt_problem,
        headers=anthropic_headers,
        client_header=b"anthropic-version",
    )
