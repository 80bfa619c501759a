"""`POST /tokenize` and `POST /detokenize`, as llama-server has them."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import NO_SUCH_MODEL, AnyEndpoint, Call, Endpoint
from gateway.apis.llama_server.tokenize_answer import DetokenizedText, Tokens, content, tokens
from gateway.apis.llama_server.tokenize_request import DetokenizeBody, TokenizeBody
from gateway.serving.models import Models, Task


class Vocabulary:
    """What the model's tokens are. An engine that is busy answers all the same; a client that leaves is forgotten."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def tokenize(self, call: Call[TokenizeBody]) -> JsonReply[Tokens]:
        """Answer `{"tokens": […]}`: ids, or objects of id and piece."""
        body = call.body
        served = await self._models.resolve(body.model, Task.TOKENIZE)
        (details,) = await served.engine.tokenize([body.text], special=body.parse_special, begin=body.add_special)
        return JsonReply(tokens(details, with_pieces=body.with_pieces))

    async def detokenize(self, call: Call[DetokenizeBody]) -> JsonReply[DetokenizedText]:
        """Answer `{"content": …}`, with control tokens by their names. Bytes that are no characters become U+FFFD."""
        served = await self._models.resolve(call.body.model, Task.TOKENIZE)
        text = await served.engine.detokenize(call.body.tokens, special=True)
        return JsonReply(content(text))


def vocabulary_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of `/tokenize` and `/detokenize`."""
    vocabulary = Vocabulary(models)
    tokenize = Endpoint(
        method="POST",
        path="/tokenize",
        id="tokenize",
        summary="The tokens of a text.",
        handler=vocabulary.tokenize,
        body=TokenizeBody,
        answer=Tokens,
        refusals=NO_SUCH_MODEL,
    )
    detokenize = Endpoint(
        method="POST",
        path="/detokenize",
        id="detokenize",
        summary="The text of some tokens.",
        handler=vocabulary.detokenize,
        body=DetokenizeBody,
        answer=DetokenizedText,
        refusals=NO_SUCH_MODEL,
    )
    return tokenize, detokenize
