"""Anthropic's API."""

from gateway.apis.anthropic.errors import AnthropicError, adapt_problem, encode_error
from gateway.apis.anthropic.headers import anthropic_headers
from gateway.apis.anthropic.messages.endpoint import messages_endpoints
from gateway.apis.endpoint import Api
from gateway.serving.models import Models


def anthropic_api(models: Models) -> Api:
    """Return Anthropic's API."""
    return Api(
        messages_endpoints(models), encode_error, AnthropicError, adapt_problem=adapt_problem, headers=anthropic_headers
    )
