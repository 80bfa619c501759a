"""Endpoint of `/infill`: the text for a gap, as editors ask for it."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.llama_server.completion.answer import NativeAnswers, NativeCompletion, NativePart
from gateway.apis.llama_server.completion.endpoint import answer_native
from gateway.apis.llama_server.errors import LlamaServerErrorAnswer
from gateway.apis.llama_server.infill.prompt import infill_request
from gateway.apis.llama_server.infill.request import InfillBody, InfillCall, prepare_infill
from gateway.apis.llama_server.options import NOT_ALLOWED
from gateway.middleware.sse import EventStream
from gateway.serving.models import Models


class InfillEndpoints:
    """Handlers for `/infill`."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[InfillCall]) -> JsonReply[NativeAnswers] | EventStream:
        """Return the text for a gap, whole or as a stream, as `/completion` does."""
        asked, caller = call.prepared, call.caller
        served = await self._models.resolve(caller, asked.completion.model)
        request, text = await infill_request(served, caller, asked)
        return await answer_native(served, caller, asked.completion, request, (text,))


def infill_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of `/infill`."""
    create = Endpoint(
        method="POST",
        path="/infill",
        id="createInfill",
        summary="Fill a gap in a text, with parts of other files.",
        body=InfillBody,
        prepare=prepare_infill,
        handler=InfillEndpoints(models).create,
        answer=NativeAnswers,
        events=NativePart | NativeCompletion | LlamaServerErrorAnswer,
        ends_with_done=False,
        refusals=QUEUED | NOT_ALLOWED,
    )
    return (create,)
