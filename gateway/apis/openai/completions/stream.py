"""Encoder of a streamed completion: OpenAI's chunks."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import orjson

from engine import Finished, Text
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder
from gateway.apis.answers.pieces import HOLE, filled
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.shapes import PromptProgress
from gateway.apis.answers.timings import RunningTimings, timings
from gateway.apis.openai.completions.answer import CompletionHead, CompletionPart
from gateway.apis.openai.completions.call import CompletionOptions
from gateway.apis.openai.usage import usage, usage_until_now


class CompletionChunks:
    """Encodes the events of a stream. Fields that are the same in every chunk are encoded only once."""

    def __init__(self, head: CompletionHead, options: CompletionOptions, ids: PromptIds) -> None:
        """Begin a stream.

        Args:
            head: fields that are the same in every chunk.
            options: options for the shape of the answer.
            ids: the prompts' token ids if the request asks for them.
        """
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        # llama-server has `usage` in the last chunk only, and some of its clients drop other chunks that have it
        has_null = options.include_usage and not options.like_llama_server
        self._plain_tail = b',"usage":null}\n\n' if has_null else b"}\n\n"
        self._options = options
        self._ids = ids
        self._logprobs: defaultdict[int, LegacyLogprobsEncoder] = defaultdict(LegacyLogprobsEncoder)
        self._running: dict[int, RunningTimings] = {}
        self._begun: set[int] = set()
        self._ends: list[Finished] = []

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterator[bytes]:
        """Yield a chunk for each event. With `include_usage`, the usage follows the last choice."""
        for event in events:
            running = self._running.get(event.choice) or self._start(event.choice, prompt_tokens)
            progress = running.read(event) if isinstance(event, Text) else None
            if progress is not None and not self._options.return_progress:
                continue
            running.count(event)
            yield self._head
            yield from self._part(event)
            if isinstance(event, Finished):
                self._ends.append(event)
            last = len(self._ends) == len(prompt_tokens) * self._options.n
            extras = self._extras(event, progress)
            if last:
                yield extras
                yield from self._end(event.choice, prompt_tokens)
            else:
                yield extras + self._tail(event.choice, prompt_tokens)

    def _start(self, choice: int, prompt_tokens: Sequence[int]) -> RunningTimings:
        echoed = prompt_tokens[choice // self._options.n] if self._options.echo else 0
        self._running[choice] = running = RunningTimings(echoed=echoed)
        return running

    def _extras(self, event: Text | Finished, progress: PromptProgress | None) -> bytes:
        """Return the end of the parts, and the requested fields of their chunk."""
        extras = b"]"
        if progress is not None:
            extras += b',"prompt_progress":' + orjson.dumps(progress)
        if isinstance(event, Text) and self._options.timings_per_token:
            extras += b',"timings":' + orjson.dumps(self._running[event.choice].timings(event.decode_seconds))
        return extras

    def _part(self, event: Text | Finished) -> Iterable[bytes]:
        """Return the part for one event.

        Its log-probabilities continue those of the choice's earlier parts. A part without tokens has none.
        """
        details = event.all_details if isinstance(event, Finished) else event.details
        logprobs = self._options.logprobs and details
        part: CompletionPart = {
            "index": event.choice,
            "text": event.text,
            "logprobs": HOLE if logprobs else None,
            "finish_reason": None,
        }
        if isinstance(event, Finished):
            part["finish_reason"] = event.reason
            part["stop_reason"] = event.stop
        if self._options.token_ids:
            part["token_ids"] = [detail.id for detail in details]
            if event.choice not in self._begun:
                self._begun.add(event.choice)
                part["prompt_token_ids"] = self._ids[event.choice // self._options.n]
        if not logprobs:
            return (orjson.dumps(part),)
        return filled(part, self._logprobs[event.choice].encode(details))

    def _tail(self, choice: int, prompt_tokens: Sequence[int]) -> bytes:
        """Return the end of a chunk, with the usage until now if it is requested."""
        if not self._options.continuous_usage:
            return self._plain_tail
        used = usage_until_now(prompt_tokens[choice // self._options.n], self._running[choice].predicted)
        return b',"usage":' + orjson.dumps(used) + b"}\n\n"

    def _end(self, choice: int, prompt_tokens: Sequence[int]) -> Iterable[bytes]:
        """Return the rest of the last choice's chunk. With `include_usage`, a separate chunk for the usage follows."""
        timed = b',"timings":' + orjson.dumps(timings(prompt_tokens, self._ends)) if self._options.timings else b""
        if not self._options.include_usage:
            return timed, self._tail(choice, prompt_tokens)
        used = orjson.dumps(usage(prompt_tokens, self._ends))
        return self._tail(choice, prompt_tokens), self._head, b'],"usage":', used, timed, b"}\n\n"
