"""Endpoint of llama-server's `/completion`, which is `/completions`, too."""

from typing import Any

from engine import GenerationRequest, all_plain
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.llama_server.completion.answer import NativeAnswer, NativeAnswers, NativePart
from gateway.apis.llama_server.completion.call import NativeCompletionCall, prepare_native_completion
from gateway.apis.llama_server.completion.completion import NativeChunks, native_answers, native_head
from gateway.apis.llama_server.completion.request import NativeCompletionBody
from gateway.apis.llama_server.errors import LlamaServerErrorAnswer
from gateway.apis.llama_server.tokens import PromptReader
from gateway.middleware.caller import Caller
from gateway.middleware.streams.sse import EventStream
from gateway.serving.models import Models
from gateway.serving.records import Operation
from gateway.serving.served import Served

_ANSWER: Any = NativeAnswers


class NativeCompletionEndpoints:
    """Handlers for `/completion`."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[NativeCompletionCall]) -> JsonReply[NativeAnswers] | EventStream:
        """Return one whole text, an array of several, or a stream with an event for each token."""
        asked, caller = call.prepared, call.caller
        served = await self._models.resolve(caller, asked.model)
        request, texts = await _tokenised(served, caller, asked)
        return await answer_native(served, caller, asked, request, texts)


async def answer_native(
    served: Served, caller: Caller, asked: NativeCompletionCall, request: GenerationRequest, texts: tuple[str, ...]
) -> JsonReply[NativeAnswers] | EventStream:
    """Run the engine's request, and return one whole text, an array of several, or a stream."""
    request = served.generations.with_defaults(request)
    head = native_head(served, request, asked.options, texts)
    if request.stream:
        encode = NativeChunks(head).encode
        source = served.generations.stream(caller, request, encode, asked.names, operation=Operation.TEXT_COMPLETION)
        return EventStream(source, end=b"", status=source.status)
    result = await served.generations.run(caller, request, asked.names, operation=Operation.TEXT_COMPLETION)
    return await JsonReply.in_pieces(native_answers(head, result))


async def _tokenised(
    served: Served, caller: Caller, call: NativeCompletionCall
) -> tuple[GenerationRequest, tuple[str, ...]]:
    """Return the engine's request with the tokens of its prompts and biases, and the text of each prompt."""
    reader = PromptReader(served, caller)
    prompts = [await reader.prompt(prompt) for prompt in call.prompts]
    request = (await with_biases(served, caller, call)).replaced(prompts=tuple(tuple(ids) for ids, _ in prompts))
    return request, tuple(text for _, text in prompts)


async def with_biases(served: Served, caller: Caller, call: NativeCompletionCall) -> GenerationRequest:
    """Return the engine's request with the biases of each token of the biased texts."""
    if not call.biased_texts:
        return call.request
    reader = PromptReader(served, caller, "logit_bias")
    texts = await reader.texts([all_plain(text) for text, _ in call.biased_texts], begin=False)
    pairs = zip(texts.ids, call.biased_texts, strict=True)
    biases = tuple((token, bias) for ids, (_, bias) in pairs for token in ids)
    sampling = call.request.sampling
    return call.request.replaced(sampling=sampling.replaced(logit_bias=sampling.logit_bias + biases))


def native_completion_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of `/completion`."""
    create = NativeCompletionEndpoints(models).create
    return tuple(
        Endpoint(
            method="POST",
            path=path,
            id=id_,
            summary="Continue texts, as llama-server does.",
            body=NativeCompletionBody,
            prepare=prepare_native_completion,
            handler=create,
            answer=_ANSWER,
            events=NativePart | NativeAnswer | LlamaServerErrorAnswer,
            streams=lambda call: call.request.stream,
            ends_with_done=False,
            refusals=QUEUED,
        )
        for path, id_ in (("/completion", "createNativeCompletion"), ("/completions", "createNativeCompletions"))
    )
