"""Requests and events as JSON can carry them, and back: for frames alone."""

import math
from base64 import b64decode, b64encode
from dataclasses import fields
from typing import Any

from engine.events import (
    Alternative,
    Embedded,
    Event,
    Failed,
    Finished,
    FinishReason,
    Released,
    Started,
    Text,
    TokenDetail,
)
from engine.request import (
    EmbeddingInput,
    EmbeddingRequest,
    GenerationRequest,
    Grammar,
    GrammarKind,
    Infill,
    Prompt,
    Sampling,
)


def check_finite(sampling: Sampling) -> None:
    """Raises `ValueError` for infinity and its like: JSON has none, so it would arrive as null."""
    values = [getattr(sampling, field.name) for field in fields(sampling)]
    numbers = [value for value in values if isinstance(value, float)]
    if not all(map(math.isfinite, [*numbers, *(bias for _, bias in sampling.logit_bias)])):
        raise ValueError("a number that is not finite")


def pack_event(key: int, event: Event) -> list[Any]:
    """An event of the request that `key` names, as a short list."""
    match event:
        case Text(choice, text, details):
            return [key, "text", choice, text, *pack_details(details)]
        case Finished():
            seconds = event.prompt_seconds, event.decode_seconds
            rest = [event.reason, event.tokens, event.cached, event.stop, *seconds, event.drafted, event.accepted]
            return [key, "finished", event.choice, event.text, rest, *pack_details(event.details)]
        case Embedded(index, vector):
            return [key, "embedded", index, b64encode(vector).decode()]
        case Started():
            return [key, "started"]
        case Failed(message, code):
            return [key, "failed", message, code]
        case Released(phase, tokens, freed):
            return [key, "released", phase, tokens, freed]


def pack_details(details: tuple[TokenDetail, ...]) -> list[Any]:
    """Tokens, each as a short list. Bytes travel as the text that has them as its code points."""
    return [
        [detail.id, detail.piece.decode("latin-1"), detail.logprob, *map(_pack_alternative, detail.top)]
        for detail in details
    ]


def _pack_alternative(one: Alternative) -> list[Any]:
    return [one.id, one.piece.decode("latin-1"), one.logprob]


def read_details(packed: list[Any]) -> tuple[TokenDetail, ...]:
    """What `pack_details` packed."""
    return tuple(
        TokenDetail(
            token,
            piece.encode("latin-1"),
            logprob,
            tuple(Alternative(other, text.encode("latin-1"), value) for other, text, value in top),
        )
        for token, piece, logprob, *top in packed
    )


def read_event(packed: list[Any]) -> tuple[int, Event]:
    """What `pack_event` packed. Raises `ValueError` for anything else."""
    match packed:
        case [key, "text", choice, text, *details]:
            return key, Text(choice, text, read_details(details) if details else ())
        case [key, "finished", choice, text, [reason, tokens, cached, *rest], *details]:
            return key, Finished(choice, text, FinishReason(reason), tokens, cached, read_details(details), *rest)
        case [key, "embedded", index, vector]:
            return key, Embedded(index, b64decode(vector))
        case [key, "started"]:
            return key, Started()
        case [key, "failed", message, code]:
            return key, Failed(message, code)
        case [key, "released", phase, tokens, freed]:
            return key, Released(phase, tokens, freed)
    raise ValueError(f"no such event: {packed!r}")


def read_generation(body: dict[str, Any]) -> GenerationRequest:
    """A request, of the fields that a frame had. Takes `body` for its own."""
    sampling = body["sampling"]
    sampling["logit_bias"] = tuple((token, bias) for token, bias in sampling["logit_bias"])
    sampling["dry_sequence_breakers"] = tuple(sampling["dry_sequence_breakers"])
    if sampling["samplers"] is not None:
        sampling["samplers"] = tuple(sampling["samplers"])
    body["sampling"] = Sampling(**sampling)
    body["prompts"] = tuple(map(_read_prompt, body["prompts"]))
    body["stop"], body["stop_tokens"] = tuple(body["stop"]), tuple(body["stop_tokens"])
    if (grammar := body["grammar"]) is not None:
        body["grammar"] = Grammar(GrammarKind(grammar["kind"]), grammar["source"])
    return GenerationRequest(**body)


def _read_prompt(packed: str | list[int] | dict[str, str]) -> Prompt:
    if isinstance(packed, dict):
        return Infill(**packed)
    return _read_input(packed)


def read_embedding(body: dict[str, Any]) -> EmbeddingRequest:
    """A request, of the fields that a frame had."""
    return EmbeddingRequest(id=body["id"], inputs=tuple(map(_read_input, body["inputs"])))


def _read_input(packed: str | list[int]) -> EmbeddingInput:
    return packed if isinstance(packed, str) else tuple(packed)
