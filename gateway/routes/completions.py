"""`POST /v1/completions`, as OpenAI defines it."""

import time
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from engine import Finished, Text
from gateway.dialects.completion import CompletionBody
from gateway.edge.sse import EventStream
from gateway.routes.body import BodyReader
from gateway.routes.generations import Answer, Generations
from gateway.routes.models import Models
from gateway.routes.reply import json_reply


class Completions:
    """Parses, runs, encodes."""

    def __init__(self, bodies: BodyReader, models: Models, generations: Generations) -> None:
        self._bodies = bodies
        self._models = models
        self._generations = generations

    async def create(self, http: Request) -> ASGIApp:
        """Answers whole, or with a stream of chunks that ends in `[DONE]`."""
        body = await self._bodies.read(http, CompletionBody)
        self._models.check(body.model)
        request = body.request(http.state.request_id)
        head = completion_head(self._models)
        if body.stream:
            chunks = CompletionChunks(head, choices=len(body.prompt) * body.n, include_usage=body.include_usage)
            return EventStream(self._generations.stream(http, request, chunks.encode))
        return json_reply(completion(head, await self._generations.run(http, request)))


def completion_head(models: Models) -> dict[str, Any]:
    """What stands first in an answer, and in each chunk of a stream."""
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": models.name,
        "system_fingerprint": models.fingerprint,
    }


def completion(head: dict[str, Any], answer: Answer) -> dict[str, Any]:
    """The whole answer."""
    choices = [
        {"index": end.choice, "text": end.text, "logprobs": None, "finish_reason": end.reason}
        for end in answer.outcomes
    ]
    return {**head, "choices": choices, "usage": usage(answer.prompt_tokens, answer.outcomes)}


def usage(prompt_tokens: Sequence[int], outcomes: Iterable[Finished]) -> dict[str, Any]:
    """What a request cost. Each prompt counts once, however many choices it has; each choice counts.

    Of a prompt's tokens, those that its first choice found resident count as cached.

    Args:
        prompt_tokens: tokens of each prompt.
        outcomes: the end of every choice, in any order.
    """
    ends = sorted(outcomes, key=lambda end: end.choice)
    choices_per_prompt = len(ends) // len(prompt_tokens)
    prompt, completion = sum(prompt_tokens), sum(end.tokens for end in ends)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(end.cached for end in ends[::choices_per_prompt])},
    }


class CompletionChunks:
    """Encodes the events of a stream. What never changes is encoded once."""

    def __init__(self, head: dict[str, Any], *, choices: int, include_usage: bool) -> None:
        self._head = b"data: " + orjson.dumps(head)[:-1]
        self._tail = b'}],"usage":null}\n\n' if include_usage else b"}]}\n\n"
        self._include_usage = include_usage
        self._open = choices
        self._ends: list[Finished] = []

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> bytes:
        """A chunk for each event, and the usage, if it is wanted, behind the last one of all."""
        parts = [part for event in events for part in self._chunk(event)]
        self._ends += [event for event in events if isinstance(event, Finished)]
        if self._include_usage and len(self._ends) == self._open:
            parts += (self._head, b',"choices":[],"usage":', orjson.dumps(usage(prompt_tokens, self._ends)), b"}\n\n")
        return b"".join(parts)

    def _chunk(self, event: Text | Finished) -> tuple[bytes, ...]:
        reason = orjson.dumps(event.reason) if isinstance(event, Finished) else b"null"
        return (
            self._head,
            b',"choices":[{"index":%d,"text":' % event.choice,
            orjson.dumps(event.text),
            b',"logprobs":null,"finish_reason":',
            reason,
            self._tail,
        )
