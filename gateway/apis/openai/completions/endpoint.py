"""`POST /v1/completions`, as OpenAI defines it."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from engine import Finished, RequestError
from gateway.apis.answers.legacy_logprobs import LegacyLogprobs, mean_logprob
from gateway.apis.answers.prompt_ids import PromptIds, prompt_ids
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.answers.timings import timings
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.completions.answer import Completion, CompletionChunk
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.completions.stream import CompletionChunks
from gateway.apis.openai.usage import usage
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Answer
from gateway.serving.models import Models, Served


class Completions:
    """Completes texts."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[CompletionBody]) -> JsonReply[Completion] | EventStream:
        """Answer whole, or with a stream of chunks that ends in `[DONE]`."""
        body = call.body
        served = await self._models.resolve(body.model)
        _check_suffix(body, served)
        request = body.request(call.caller.request_id)
        ids = await prompt_ids(served.engine, request.prompts) if body.return_token_ids else ()
        head = completion_head(served)
        if body.stream:
            encode = CompletionChunks(head, body, ids).encode
            return EventStream(served.generations.stream(call.caller, request, encode, body.engine_names))
        answer = await served.generations.run(call.caller, request, body.engine_names)
        return JsonReply(completion(head, body, ids, answer))


def _check_suffix(body: CompletionBody, served: Served) -> None:
    if body.suffix and not served.loaded.infills:
        message = "suffix: this model has no tokens for filling in between two texts"
        raise RequestError(message, code="unsupported", param="suffix")


def completion_head(served: Served) -> dict[str, Any]:
    """What stands first in an answer, and in each chunk of a stream."""
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
    }


def completion(head: dict[str, Any], body: CompletionBody, ids: PromptIds, answer: Answer) -> dict[str, Any]:
    """The whole answer. What was generated and is not shown counts, too."""
    choices = [_choice(index, end, body, ids) for index, end in enumerate(best(answer, body))]
    spent = {"usage": usage(answer.prompt_tokens, answer.outcomes)}
    if body.timings:
        spent["timings"] = timings(answer.prompt_tokens, answer.outcomes)
    return {**head, "choices": choices, **spent}


def best(answer: Answer, body: CompletionBody) -> Iterator[Finished]:
    """The choices to show: of each prompt the `n` likeliest for their length, the likeliest first."""
    if body.choices == body.n:
        yield from answer.outcomes
        return
    for index, prompt_tokens in enumerate(answer.prompt_tokens):
        ends = answer.outcomes[index * body.choices : (index + 1) * body.choices]
        echoed = prompt_tokens if body.echo else 0
        means = [mean_logprob(end.details[echoed:]) for end in ends]
        ranking = sorted(range(len(ends)), key=means.__getitem__, reverse=True)
        yield from (ends[rank] for rank in ranking[: body.n])


def _choice(index: int, end: Finished, body: CompletionBody, ids: PromptIds) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": index,
        "text": end.text,
        "logprobs": None if body.logprobs is None else LegacyLogprobs().encode(end.details),
        "finish_reason": end.reason,
        "stop_reason": end.stop,
    }
    if body.return_token_ids:
        choice["token_ids"] = [detail.id for detail in end.details]
        choice["prompt_token_ids"] = ids[index // body.n]
    return choice


def completions_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of completions."""
    create = Endpoint(
        method="POST",
        path="/v1/completions",
        id="createCompletion",
        summary="Continue texts.",
        handler=Completions(models).create,
        body=CompletionBody,
        answer=Completion,
        events=CompletionChunk | ErrorAnswer,
        refusals=QUEUED,
    )
    return (create,)
