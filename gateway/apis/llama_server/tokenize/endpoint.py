"""Endpoints `/tokenize` and `/detokenize`, compatible with llama-server."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.llama_server.tokenize.answer import DetokenizedText, Tokens, TokensEncoder, content
from gateway.apis.llama_server.tokenize.call import (
    DetokenizeCall,
    TokenizeCall,
    prepare_detokenize,
    prepare_tokenize,
)
from gateway.apis.llama_server.tokenize.request import DetokenizeBody, TokenizeBody
from gateway.serving.models import Models
from gateway.serving.served import Task


class TokenizeEndpoints:
    """Handlers for tokenization. A busy engine answers too; the answer is dropped if the client has left."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def tokenize(self, call: Call[TokenizeCall]) -> JsonReply[Tokens]:
        """Return `{"tokens": […], …}`: ids, or objects of id and piece."""
        asked = call.prepared
        served = await self._models.resolve(call.caller, asked.model, Task.TOKENIZE)
        answer = TokensEncoder(with_pieces=asked.with_pieces)
        await served.engine.tokenize(
            [asked.text],
            special=asked.parse_special,
            begin=asked.add_special,
            take=answer.add,
            pieces=asked.with_pieces,
            client=call.caller.client,
            sent=call.caller.release_body,
        )
        return JsonReply.encoded(*answer.parts(served.loaded.context))

    async def detokenize(self, call: Call[DetokenizeCall]) -> JsonReply[DetokenizedText]:
        """Return `{"content": …}`. Control tokens appear as their names; invalid UTF-8 becomes U+FFFD."""
        served = await self._models.resolve(call.caller, call.prepared.model, Task.TOKENIZE)
        text = await served.engine.detokenize(
            call.prepared.tokens, special=True, client=call.caller.client, sent=call.caller.release_body
        )
        return JsonReply(content(text))


def tokenize_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of `/tokenize` and `/detokenize`."""
    endpoints = TokenizeEndpoints(models)
    tokenize = Endpoint(
        method="POST",
        path="/tokenize",
        id="tokenize",
        summary="Convert a text to tokens.",
        body=TokenizeBody,
        prepare=prepare_tokenize,
        handler=endpoints.tokenize,
        answer=Tokens,
        refusals=QUEUED,
    )
    detokenize = Endpoint(
        method="POST",
        path="/detokenize",
        id="detokenize",
        summary="Convert tokens to text.",
        body=DetokenizeBody,
        prepare=prepare_detokenize,
        handler=endpoints.detokenize,
        answer=DetokenizedText,
        refusals=QUEUED,
    )
    return tokenize, detokenize
