"""Endpoint of OpenAI's completions: `/v1/completions`."""

from engine import RequestError
from gateway.apis.answers.prompt_ids import prompt_ids
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint, unprepared
from gateway.apis.openai.completions.answer import Completion, CompletionChunk
from gateway.apis.openai.completions.completion import completion, completion_head
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.completions.stream import CompletionChunks
from gateway.middleware.sse import EventStream
from gateway.serving.models import Models, Served


class CompletionsEndpoints:
    """Handlers for text completions."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[CompletionBody]) -> JsonReply[Completion] | EventStream:
        """Return the whole completion, or a stream of chunks that ends in `[DONE]`."""
        body = call.prepared
        served = await self._models.resolve(body.model)
        _check_suffix(body, served)
        request = body.request(call.caller.request_id)
        ids = await prompt_ids(served.engine, request.prompts, call.caller.client) if body.return_token_ids else ()
        head = completion_head(served.name, served.fingerprint)
        if body.stream:
            encode = CompletionChunks(head, body, ids).encode
            return EventStream(served.generations.stream(call.caller, request, encode, body.engine_names))
        answer = await served.generations.run(call.caller, request, body.engine_names)
        return JsonReply(completion(head, body, ids, answer))


def _check_suffix(body: CompletionBody, served: Served) -> None:
    if body.suffix and not served.loaded.infills:
        message = "suffix: this model has no tokens for filling in between two texts"
        raise RequestError(message, code="unsupported", param="suffix")


def completions_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of completions."""
    create = Endpoint(
        method="POST",
        path="/v1/completions",
        id="createCompletion",
        summary="Continue texts.",
        body=CompletionBody,
        prepare=unprepared,
        handler=CompletionsEndpoints(models).create,
        answer=Completion,
        events=CompletionChunk | ErrorAnswer,
        refusals=QUEUED,
    )
    return (create,)
