"""Endpoint `/generate` of the predecessor: one prompt, one answer in an envelope with a `success` flag."""

from gateway.apis.answers.prompt_ids import prompt_ids
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import AnyEndpoint, Call, Endpoint
from gateway.apis.generate.answer import Envelope, Failure, GeneratedText, Success
from gateway.apis.generate.call import GenerateCall, prepare_generate
from gateway.apis.generate.request import GenerateBody
from gateway.middleware.streams.sse import EventStream
from gateway.serving.models import Models
from gateway.serving.records import Operation


class GenerateEndpoints:
    """Handlers for `/generate`."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[GenerateCall]) -> JsonReply[Success] | EventStream:
        """Return the whole answer, or a stream of texts that ends in the whole answer."""
        request, options = call.prepared.request, call.prepared.options
        served = await self._models.resolve(call.caller, None)
        ids = await prompt_ids(served.engine, request.prompts, call.caller.client) if options.token_ids else ()
        generations, caller, names = served.generations, call.caller, call.prepared.names
        envelope = Envelope(options, ids)
        if request.stream:
            source = generations.stream(caller, request, envelope.encode, names, operation=Operation.TEXT_COMPLETION)
            return EventStream(source, end=b"", status=source.status)
        answer = await generations.run(caller, request, names, operation=Operation.TEXT_COMPLETION)
        return await JsonReply.in_pieces(envelope.success(answer.prompt_tokens, *answer.outcomes))


def generate_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of `/generate`."""
    create = Endpoint(
        method="POST",
        path="/generate",
        id="generate",
        summary="Continue one text. The answer has a `success` flag.",
        body=GenerateBody,
        prepare=prepare_generate,
        handler=GenerateEndpoints(models).create,
        answer=Success,
        events=GeneratedText | Success | Failure,
        streams=lambda call: call.request.stream,
        ends_with_done=False,
        refusals=frozenset({429}),
    )
    return (create,)
