"""`POST /v1/completions`, as OpenAI defines it."""

import time
from collections.abc import Iterator
from uuid import uuid4

from starlette.requests import Request
from starlette.types import ASGIApp

from engine import Engine, Finished, GenerationRequest, RequestError
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder, mean_logprob
from gateway.apis.answers.prompt_ids import PromptIds, prompt_ids
from gateway.apis.answers.reply import json_reply
from gateway.apis.answers.timings import timings
from gateway.apis.fields.read import BodyReader
from gateway.apis.openai.completions.answer import Completion, CompletionChoice, CompletionHead
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.completions.stream import CompletionChunks
from gateway.apis.openai.usage import usage
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Answer, Generations
from gateway.serving.models import Models


class Completions:
    """Parses, runs, encodes."""

    def __init__(self, engine: Engine, bodies: BodyReader, models: Models, generations: Generations) -> None:
        self._engine = engine
        self._bodies = bodies
        self._models = models
        self._generations = generations

    async def create(self, http: Request) -> ASGIApp:
        """Answers whole, or with a stream of chunks that ends in `[DONE]`."""
        body = await self._bodies.read(http, CompletionBody)
        self._models.check(body.model)
        self._check_suffix(body)
        request = self._generations.partitioned(http, body.request(http.state.request_id))
        ids = await self._prompt_ids(body, request)
        head = completion_head(self._models)
        if body.stream:
            encode = CompletionChunks(head, body, ids).encode
            return EventStream(self._generations.stream(http, request, encode, body.engine_names))
        answer = await self._generations.run(http, request, body.engine_names)
        return json_reply(completion(head, body, ids, answer))

    def _check_suffix(self, body: CompletionBody) -> None:
        model = self._engine.model
        if body.suffix and model is not None and not model.infills:
            message = "suffix: this model has no tokens for filling in between two texts"
            raise RequestError(message, code="unsupported", param="suffix")

    async def _prompt_ids(self, body: CompletionBody, request: GenerationRequest) -> PromptIds:
        return await prompt_ids(self._engine, request.prompts) if body.return_token_ids else ()


def completion_head(models: Models) -> CompletionHead:
    """Return the fields that begin an answer, and each chunk of a stream."""
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": models.name,
        "system_fingerprint": models.fingerprint,
    }


def completion(head: CompletionHead, body: CompletionBody, ids: PromptIds, answer: Answer) -> Completion:
    """Return the whole answer. The usage includes choices that were generated and are not shown."""
    encoded: Completion = {
        "id": head["id"],
        "object": head["object"],
        "created": head["created"],
        "model": head["model"],
        "system_fingerprint": head["system_fingerprint"],
        "choices": [_choice(index, end, body, ids) for index, end in enumerate(best(answer, body))],
        "usage": usage(answer.prompt_tokens, answer.outcomes),
    }
    if body.timings:
        encoded["timings"] = timings(answer.prompt_tokens, answer.outcomes)
    return encoded


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


def _choice(index: int, end: Finished, body: CompletionBody, ids: PromptIds) -> CompletionChoice:
    choice: CompletionChoice = {
        "index": index,
        "text": end.text,
        "logprobs": None if body.logprobs is None else LegacyLogprobsEncoder().encode(end.details),
        "finish_reason": end.reason,
        "stop_reason": end.stop,
    }
    if body.return_token_ids:
        choice["token_ids"] = [detail.id for detail in end.details]
        choice["prompt_token_ids"] = ids[index // body.n]
    return choice
