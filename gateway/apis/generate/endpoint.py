"""`POST /generate`, the predecessor's route: one prompt, one answer in an envelope that says whether it went well."""

from gateway.apis.answers.prompt_ids import prompt_ids
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import Call
from gateway.apis.generate.answer import Envelope, Success
from gateway.apis.generate.request import GenerateBody
from gateway.middleware.sse import EventStream
from gateway.serving.models import Models


class Generate:
    """Continues one text."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[GenerateBody]) -> JsonReply[Success] | EventStream:
        """Answer whole, or with a stream of texts that ends in what would have been the whole answer."""
        body = call.body
        served = await self._models.resolve(None)
        request = body.request(call.caller.request_id)
        ids = await prompt_ids(served.engine, request.prompts) if body.return_token_ids else ()
        envelope = Envelope(body, ids)
        if body.stream:
            source = served.generations.stream(call.caller, request, envelope.encode, body.engine_names)
            return EventStream(source, end=b"")
        answer = await served.generations.run(call.caller, request, body.engine_names)
        return JsonReply(envelope.success(answer.prompt_tokens, *answer.outcomes))
