"""OpenAI's API."""

from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import Api
from gateway.apis.openai.chat.endpoint import chat_endpoints
from gateway.apis.openai.completions.endpoint import completions_endpoints
from gateway.apis.openai.conversations.endpoint import conversations_endpoints
from gateway.apis.openai.conversations.histories import Histories
from gateway.apis.openai.embeddings.endpoint import embeddings_endpoints
from gateway.apis.openai.models.endpoint import models_endpoints
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.endpoint import responses_endpoints
from gateway.apis.openai.stores import Stores
from gateway.middleware.errors import encode_error
from gateway.serving.models import Models


def openai_api(models: Models, stores: Stores, background: BackgroundResponses) -> Api:
    """Return OpenAI's API."""
    histories = Histories(stores.responses, stores.conversations)
    endpoints = (
        *completions_endpoints(models),
        *chat_endpoints(models),
        *responses_endpoints(models, stores.responses, histories, background),
        *conversations_endpoints(stores.conversations, stores.responses),
        *embeddings_endpoints(models),
        *models_endpoints(models),
    )
    return Api(endpoints, encode_error, ErrorAnswer)
