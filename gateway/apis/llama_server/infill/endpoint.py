"""Endpoint of `/infill`: the text for a gap, as editors ask for it."""

from typing import Any

from engine import GenerationRequest
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.llama_server.completion.answer import NativeAnswer, NativeAnswers, NativePart
from gateway.apis.llama_server.completion.endpoint import answer_native, with_biases
from gateway.apis.llama_server.errors import LlamaServerErrorAnswer
from gateway.apis.llama_server.infill.prompt import check_infills, infill_texts, infill_tokens
from gateway.apis.llama_server.infill.request import InfillBody, InfillCall, prepare_infill
from gateway.apis.llama_server.options import NOT_ALLOWED
from gateway.apis.llama_server.tokens import PromptReader
from gateway.middleware.caller import Caller
from gateway.middleware.streams.sse import EventStream
from gateway.serving.models import Models
from gateway.serving.served import Served

_ANSWER: Any = NativeAnswers


class InfillEndpoints:
    """Handlers for `/infill`."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[InfillCall]) -> JsonReply[NativeAnswers] | EventStream:
        """Return the text for a gap, whole or as a stream, as `/completion` does."""
        asked, caller = call.prepared, call.caller
        served = await self._models.resolve(caller, asked.completion.model)
        request, text = await _tokenised(served, caller, asked)
        return await answer_native(served, caller, asked.completion, request, (text,))


async def _tokenised(served: Served, caller: Caller, call: InfillCall) -> tuple[GenerationRequest, str]:
    """Return the engine's request with the tokens of its prompt, and the text of these."""
    reader, marks = PromptReader(served, caller, None), served.loaded.fill_tokens
    check_infills(marks)
    texts = await infill_texts(reader, call, named="file" in marks)
    request = await with_biases(served, caller, call.completion)
    limit = request.default_max_tokens if request.max_tokens is None else request.max_tokens
    context = served.loaded.context
    tokens = infill_tokens(marks, texts, context - min(limit or 0, context // 2) - 1)
    text = await served.engine.detokenize(tokens, special=True, client=caller.client)
    return request.replaced(prompts=(tuple(tokens),)), text.decode(errors="replace")


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
        answer=_ANSWER,
        events=NativePart | NativeAnswer | LlamaServerErrorAnswer,
        streams=lambda call: call.completion.request.stream,
        ends_with_done=False,
        refusals=QUEUED | NOT_ALLOWED,
    )
    return (create,)
