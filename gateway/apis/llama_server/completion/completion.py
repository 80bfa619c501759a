"""Encoders of `/completion`: whole texts, and the events of a stream."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from engine import Finished, FinishReason, GenerationRequest, Text, TokenDetail
from gateway.apis.answers.pieces import HOLE, array_of_pieces, filled
from gateway.apis.answers.shapes import PromptProgress
from gateway.apis.answers.timings import RunningTimings, timings
from gateway.apis.answers.token_texts import TokenTexts
from gateway.apis.llama_server.completion.answer import NativeAnswer, NativeCompletion, NativePart, StopType
from gateway.apis.llama_server.completion.call import NativeOptions
from gateway.apis.llama_server.completion.probabilities import probabilities, probabilities_in_pieces
from gateway.apis.llama_server.generation_settings import GenerationSettings, generation_settings
from gateway.serving.generations import GenerationResult
from gateway.serving.served import Served

_PROBABILITIES: Final = "completion_probabilities"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeHead:
    """Fields that all answers to one request share."""

    model: str
    """The model's name in answers."""
    context: int
    """Tokens of a slot."""
    settings: GenerationSettings
    """The request's settings."""
    prompts: tuple[str, ...]
    """Text of each prompt."""
    n: int
    """Number of texts for each prompt."""
    options: NativeOptions
    """Options for the shape of the answer."""

    @property
    def sampled(self) -> bool:
        """True for probabilities after the samplers."""
        return bool(self.settings["post_sampling_probs"])

    @property
    def has_probs(self) -> bool:
        """True for answers with probabilities."""
        return bool(self.settings["n_probs"])


def native_head(
    served: Served, request: GenerationRequest, options: NativeOptions, prompts: tuple[str, ...]
) -> NativeHead:
    """Return the fields that all answers share. The request has the operator's defaults."""
    model, timed = served.loaded, options.timings_per_token
    return NativeHead(
        model=served.name,
        context=model.context,
        settings=generation_settings(request, model.end_tokens, timings_per_token=timed),
        prompts=prompts,
        n=request.n,
        options=options,
    )


def native_answers(head: NativeHead, result: GenerationResult) -> Iterator[bytes]:
    """Return the JSON of the whole texts in pieces: an object for one text, an array for several."""
    answers = (_native_answer(head, result.prompt_tokens[end.choice // head.n], end) for end in result.outcomes)
    return next(answers) if len(result.outcomes) == 1 else array_of_pieces(answers)


def _native_answer(head: NativeHead, prompt_tokens: int, end: Finished) -> Iterator[bytes]:
    whole = completion(head, prompt_tokens, end, end.text)
    if head.options.return_tokens:
        whole["tokens"] = [detail.id for detail in end.details]
    if head.has_probs:
        whole[_PROBABILITIES] = HOLE
    answer = chosen(whole, head.options.response_fields)
    probs = probabilities_in_pieces(end.details, alternatives=head.settings["n_probs"], sampled=head.sampled)
    return filled(answer, *((probs,) if _PROBABILITIES in answer else ()))


def completion(head: NativeHead, prompt_tokens: int, end: Finished, text: str) -> NativeCompletion:
    """Return the figures of a text that has ended, with the text and without its tokens."""
    held = prompt_tokens + end.tokens - end.discarded
    return {
        "index": end.choice,
        "content": text,
        "tokens": [],
        "id_slot": end.slot,
        "stop": True,
        "model": head.model,
        "tokens_predicted": end.tokens,
        "tokens_evaluated": prompt_tokens,
        "generation_settings": head.settings,
        "prompt": head.prompts[end.choice // head.n],
        "has_new_line": "\n" in text,
        "truncated": bool(end.discarded) or (end.reason is FinishReason.LENGTH and held >= head.context),
        "stop_type": _stop_type(end),
        "stopping_word": end.stop if isinstance(end.stop, str) else "",
        "tokens_cached": max(0, held - 1),
        "timings": timings([prompt_tokens], [end]),
    }


def chosen(whole: NativeCompletion, fields: Sequence[str]) -> NativeAnswer:
    """Return some fields of an answer, those of inner objects by their path. Missing ones are left out."""
    if not fields:
        return whole
    found = {field: _at(whole, field.split("/")) for field in fields}
    return {field: value for field, value in found.items() if value is not None}


def _at(value: object, path: Sequence[str]) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _stop_type(end: Finished) -> StopType:
    if end.reason is FinishReason.LENGTH:
        return "limit"
    return "word" if isinstance(end.stop, str) else "eos"


class NativeChunks:
    """Encodes the events of a stream: one for each token, and one at the end of each text."""

    def __init__(self, head: NativeHead) -> None:
        self._head = head
        self._choices: dict[int, _Choice] = {}

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterator[bytes]:
        """Yield the SSE events."""
        for event in events:
            tokens = prompt_tokens[event.choice // self._head.n]
            choice = self._choices.setdefault(event.choice, _Choice(self._head, event.choice, tokens))
            for part in choice.parts(event):
                yield b"data: %b\n\n" % orjson.dumps(part)


class _Choice:
    """Encoder of one text."""

    def __init__(self, head: NativeHead, index: int, prompt_tokens: int) -> None:
        self._head = head
        self._index = index
        self._prompt_tokens = prompt_tokens
        self._text: list[str] = []
        self._token_texts = TokenTexts()
        self._running = RunningTimings()

    def parts(self, event: Text | Finished) -> Iterator[NativePart | NativeAnswer]:
        """Yield the parts of one event."""
        progress = self._running.read(event) if isinstance(event, Text) else None
        if progress is not None:
            yield from self._progress(progress)
            return
        self._text.append(event.text)
        for text, token in self._token_texts.split(event.text, event.details):
            if text or token:
                self._running.add(1 if token else 0)
                yield self._part(text, token, event.decode_seconds)
        if isinstance(event, Finished):
            whole = completion(self._head, self._prompt_tokens, event, "".join(self._text))
            whole["content"] = ""
            yield chosen(whole, self._head.options.response_fields)

    def _progress(self, progress: PromptProgress) -> Iterator[NativePart]:
        if self._head.options.return_progress:
            part = self._part("", None, 0.0)
            part["prompt_progress"] = progress
            yield part

    def _part(self, text: str, token: TokenDetail | None, decode_seconds: float) -> NativePart:
        part: NativePart = {
            "index": self._index,
            "content": text,
            "tokens": [token.id] if token else [],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": self._running.predicted,
            "tokens_evaluated": self._prompt_tokens,
        }
        if self._head.options.timings_per_token:
            part["timings"] = self._running.timings(decode_seconds)
        if token and self._head.has_probs:
            part[_PROBABILITIES] = [probabilities(token, sampled=self._head.sampled)]
        return part
