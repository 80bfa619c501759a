"""The stream of a completion: OpenAI's chunks."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import orjson

from engine import Finished, Text
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.timings import timings
from gateway.apis.openai.completions.answer import CompletionHead, TokenIds
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.usage import usage


class CompletionChunks:
    """Encodes the events of a stream. What never changes is encoded once."""

    def __init__(self, head: CompletionHead, body: CompletionBody, ids: PromptIds) -> None:
        """Args: `head`, of each chunk; `ids`, the prompts' tokens if they are asked for."""
        self._head = b"data: " + orjson.dumps(head)[:-1]
        self._tail = b'}],"usage":null}\n\n' if body.include_usage else b"}]}\n\n"
        self._body = body
        self._ids = ids
        self._choices = len(body.prompt) * body.n
        self._logprobs: defaultdict[int, LegacyLogprobsEncoder] = defaultdict(LegacyLogprobsEncoder)
        self._begun: set[int] = set()
        self._ends: list[Finished] = []

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> bytes:
        """A chunk for each event, and the usage, if it is wanted, behind the last one of all."""
        parts: list[bytes] = []
        for event in events:
            parts += self._choice(event)
            if isinstance(event, Finished):
                self._ends.append(event)
            parts += self._end(prompt_tokens) if len(self._ends) == self._choices else (self._tail,)
        return b"".join(parts)

    def _choice(self, event: Text | Finished) -> Iterable[bytes]:
        """An event's chunk up to where its choice ends."""
        return (
            self._head,
            b',"choices":[{"index":%d,"text":' % event.choice,
            orjson.dumps(event.text),
            b',"logprobs":',
            self._told(event),
            _reason(event) if isinstance(event, Finished) else b',"finish_reason":null',
            self._tokens(event) if self._body.return_token_ids else b"",
        )

    def _told(self, event: Text | Finished) -> bytes:
        """A choice's log-probabilities go on where its last ones ended; a chunk without a token has none."""
        if self._body.logprobs is None or not event.details:
            return b"null"
        return orjson.dumps(self._logprobs[event.choice].encode(event.details))

    def _tokens(self, event: Text | Finished) -> bytes:
        """Ends an unfinished object with the choice's tokens, in its first chunk with the prompt's too."""
        ids: TokenIds = {"token_ids": [detail.id for detail in event.details]}
        if event.choice not in self._begun:
            self._begun.add(event.choice)
            ids["prompt_token_ids"] = self._ids[event.choice // self._body.n]
        return b"," + orjson.dumps(ids)[1:-1]

    def _end(self, prompt_tokens: Sequence[int]) -> Iterable[bytes]:
        """Ends the last choice's chunk. What the request cost follows in a chunk of its own, if it is wanted."""
        timed = b',"timings":' + orjson.dumps(timings(prompt_tokens, self._ends)) if self._body.timings else b""
        if not self._body.include_usage:
            return b"}]", timed, b"}\n\n"
        spent = orjson.dumps(usage(prompt_tokens, self._ends))
        return self._tail, self._head, b',"choices":[],"usage":', spent, timed, b"}\n\n"


def _reason(end: Finished) -> bytes:
    return b',"finish_reason":"%b","stop_reason":%b' % (end.reason.encode(), orjson.dumps(end.stop))
