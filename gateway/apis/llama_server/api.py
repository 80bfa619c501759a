"""The endpoints of llama-server's own routes."""

from types import NoneType

from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import NO_SUCH_MODEL, Api, Endpoint
from gateway.apis.llama_server.apply_template import ApplyTemplate
from gateway.apis.llama_server.health import Health
from gateway.apis.llama_server.slots import Slots
from gateway.apis.llama_server.tokenize import Vocabulary
from gateway.apis.llama_server.tokenize_request import DetokenizeBody, TokenizeBody
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.others import Content, Healthy, Prompt, Slot, Tokens, Unhealthy
from gateway.middleware.errors import encode_error
from gateway.serving.models import Models


def llama_server_api(models: Models, health: Health) -> Api:
    """Return llama-server's routes. Its errors have OpenAI's shape."""
    vocabulary = Vocabulary(models)
    get_health: Endpoint[None, Healthy | Unhealthy] = Endpoint(
        method="GET",
        path="/health",
        id="getHealth",
        summary="Whether requests are welcome.",
        handler=health.get,
        body=NoneType,
        answer=Healthy,
        unready=Unhealthy,
    )
    endpoints = (
        Endpoint(
            method="POST",
            path="/apply-template",
            id="applyTemplate",
            summary="The prompt that a conversation becomes.",
            handler=ApplyTemplate(models).apply,
            body=ChatBody,
            answer=Prompt,
            refusals=NO_SUCH_MODEL,
        ),
        Endpoint(
            method="POST",
            path="/tokenize",
            id="tokenize",
            summary="The tokens of a text.",
            handler=vocabulary.tokenize,
            body=TokenizeBody,
            answer=Tokens,
            refusals=NO_SUCH_MODEL,
        ),
        Endpoint(
            method="POST",
            path="/detokenize",
            id="detokenize",
            summary="The text of some tokens.",
            handler=vocabulary.detokenize,
            body=DetokenizeBody,
            answer=Content,
            refusals=NO_SUCH_MODEL,
        ),
        get_health,
        Endpoint(
            method="GET",
            path="/slots",
            id="listSlots",
            summary="What every slot of the engine does now.",
            handler=Slots(models).list,
            body=NoneType,
            answer=list[Slot],
        ),
    )
    return Api(endpoints, encode_error, ErrorAnswer)
