"""vLLM's endpoint `/tokenizer_info`, by which clients tokenize with the model's own tokenizer."""

from typing import Literal

from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import JsonObject
from gateway.apis.endpoint import MODEL_PARAMETER, QUEUED, AnyEndpoint, BodilessEndpoint, Call
from gateway.serving.models import Models
from gateway.serving.served import Task


class TokenizerInfo(JsonObject):
    """The tokenizer of a model, by the names of Hugging Face's `tokenizer_config.json`."""

    tokenizer_class: Literal["llama.cpp"]
    bos_token: str | None
    eos_token: str | None
    chat_template: str | None


class TokenizerInfoEndpoint:
    """Handler for the tokenizer of the model in the query, otherwise of the default model."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def get(self, call: Call[None]) -> JsonReply[TokenizerInfo]:
        """Return the tokenizer."""
        served = await self._models.resolve(call.caller, call.http.query_params.get("model"), Task.TOKENIZE)
        info = served.loaded
        return JsonReply(
            {
                "tokenizer_class": "llama.cpp",
                "bos_token": info.bos or None,
                "eos_token": info.eos or None,
                "chat_template": served.prompts.source(info) or None,
            }
        )


def tokenizer_info_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of `/tokenizer_info`."""
    get = BodilessEndpoint(
        method="GET",
        path="/tokenizer_info",
        id="getTokenizerInfo",
        summary="Get the special tokens and the chat template of a model, in vLLM's shape.",
        handler=TokenizerInfoEndpoint(models).get,
        answer=TokenizerInfo,
        query=(MODEL_PARAMETER,),
        refusals=QUEUED,
    )
    return (get,)
