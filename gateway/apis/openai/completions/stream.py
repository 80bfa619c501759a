"""Encoder of a streamed completion: OpenAI's chunks."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import orjson

from engine import Finished, Text
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder
from gateway.apis.answers.pieces import HOLE, filled
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.timings import RunningTimings
from gateway.apis.openai.completions.answer import CompletionHead, CompletionPart
from gateway.apis.openai.completions.call import CompletionOptions
from gateway.apis.openai.reports import ChunkFrame


class CompletionChunks:
    """Encodes the events of a stream."""

    def __init__(self, head: CompletionHead, options: CompletionOptions, ids: PromptIds) -> None:
        """Begin a stream.

        Args:
            head: fields that are the same in every chunk.
            options: options for the shape of the answer.
            ids: the prompts' token ids if the request asks for them.
        """
        self._frame = ChunkFrame(head, options.report)
        self._options = options
        self._ids = ids
        self._logprobs: defaultdict[int, LegacyLogprobsEncoder] = defaultdict(LegacyLogprobsEncoder)
        self._running: dict[int, RunningTimings] = {}
        self._begun: set[int] = set()
        self._ends: list[Finished] = []

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterator[bytes]:
        """Yield a chunk for each event. With `include_usage`, the usage follows the last choice."""
        for event in events:
            prompt = prompt_tokens[event.choice // self._options.n]
            if (running := self._running.get(event.choice)) is None:
                running = self._running[event.choice] = RunningTimings(echoed=prompt if self._options.echo else 0)
            progress = running.read(event) if isinstance(event, Text) else None
            if progress is not None and not self._options.report.return_progress:
                continue
            running.count(event)
            yield self._frame.head
            yield from self._part(event)
            end = self._frame.end(prompt, running)
            if isinstance(event, Finished):
                self._ends.append(event)
                last = len(self._ends) == len(prompt_tokens) * self._options.n
                yield from self._frame.last(end, prompt_tokens, self._ends) if last else (end,)
            else:
                yield self._frame.extras(running, event.decode_seconds, progress) + end

    def _part(self, event: Text | Finished) -> Iterable[bytes]:
        """Return the JSON of an array of the part for one event.

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
        if self._options.report.token_ids:
            part["token_ids"] = [detail.id for detail in details]
            if event.choice not in self._begun:
                self._begun.add(event.choice)
                part["prompt_token_ids"] = self._ids[event.choice // self._options.n]
        if not logprobs:
            return (orjson.dumps([part]),)
        return filled([part], self._logprobs[event.choice].encode(details))
