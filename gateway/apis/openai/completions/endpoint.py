"""Endpoint of OpenAI's completions: `/v1/completions`."""

from gateway.apis.answers.prompt_ids import prompt_ids
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.completions.answer import Completion, CompletionChunk
from gateway.apis.openai.completions.call import CompletionCall, prepare_completion
from gateway.apis.openai.completions.completion import completion, completion_head
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.completions.stream import CompletionChunks
from gateway.middleware.streams.sse import EventStream
from gateway.serving.models import Models
from gateway.serving.records import Operation


class CompletionsEndpoints:
    """Handlers for text completions."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[CompletionCall]) -> JsonReply[Completion] | EventStream:
        """Return the whole completion, or a stream of chunks that ends in `[DONE]`."""
        request, options = call.prepared.request, call.prepared.options
        served = await self._models.resolve(call.caller, call.prepared.model)
        ids = await prompt_ids(served.engine, request.prompts, call.caller.client) if options.report.token_ids else ()
        generations, caller, names = served.generations, call.caller, call.prepared.names
        head = completion_head(options, served.name, served.fingerprint)
        if request.stream:
            encode = CompletionChunks(head, options, ids).encode
            source = generations.stream(caller, request, encode, names, operation=Operation.TEXT_COMPLETION)
            return EventStream(source, status=source.status)
        answer = await generations.run(caller, request, names, operation=Operation.TEXT_COMPLETION)
        return await JsonReply.in_pieces(await completion(head, options, ids, answer))


def completions_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of completions."""
    create = Endpoint(
        method="POST",
        path="/v1/completions",
        id="createCompletion",
        summary="Continue texts.",
        body=CompletionBody,
        prepare=prepare_completion,
        handler=CompletionsEndpoints(models).create,
        answer=Completion,
        events=CompletionChunk | ErrorAnswer,
        streams=lambda call: call.request.stream,
        refusals=QUEUED,
    )
    return (create,)
