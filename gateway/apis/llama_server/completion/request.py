"""Fields of llama-server's `/completion` requests."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from typing_extensions import override

from engine import GenerationRequest, Sampling
from gateway.apis.fields.constraints import GrammarFields, Schema
from gateway.apis.fields.json_types import wrong_type
from gateway.apis.fields.prompts import MAX_CHOICES, bounded_choices
from gateway.apis.fields.refusing import RefusingFields
from gateway.apis.fields.sampling import (
    MAX_BIASES,
    MAX_INT,
    MAX_STOPS,
    MIN_REPEAT_PENALTY,
    SamplingFields,
    cut_at_the_end,
)
from gateway.apis.fields.stream import StreamOptions
from gateway.apis.llama_server.completion.samplers import SamplersField
from gateway.apis.llama_server.generation_settings import BAN
from gateway.apis.llama_server.prompts import MixedForms, ReadPrompt, read_mixed_prompts

MAX_PROBS = 2**10
MAX_MILLISECONDS = 2**40
MAX_RESPONSE_FIELDS = 2**7

Bias: TypeAlias = tuple[int | str, float]
"""A bias of a token, or of each token of a text."""

BiasValue: TypeAlias = float | Literal[False]
BiasForms: TypeAlias = dict[str, BiasValue] | Annotated[list[tuple[int | str, BiasValue]], Field(max_length=MAX_BIASES)]


def _biases(value: object) -> tuple[Bias, ...]:
    """Return the pairs of an array, or of an object with ids or texts as its keys. A bias of false bans a token."""
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or len(pairs) > MAX_BIASES:
        raise ValueError(f"should be an object, or an array of pairs, of at most {MAX_BIASES} tokens and biases")
    return tuple(map(_pair, pairs))


def _pair(pair: object) -> Bias:
    match pair:
        case [int() | str() as token, int() | float() as bias] if token is not True and bias is not True:
            known = int(token) if isinstance(token, str) and token.isascii() and token.isdigit() else token
            if isinstance(known, int) and not 0 <= known <= MAX_INT:
                raise ValueError(f"has the token id {known}, which no model has")
            return known, BAN if bias is False else max(BAN, min(-BAN, float(bias)))
    raise ValueError("should have pairs of a token id or a text, and a number or false")


def _stops(value: object) -> tuple[str, ...]:
    """Return the stop strings that are not empty."""
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise wrong_type("should be a string or an array of strings")
    if len(stops) > MAX_STOPS:
        raise ValueError(f"should have at most {MAX_STOPS} strings")
    return tuple(filter(None, stops))


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema. An empty one becomes that of any object, as in llama-server."""
    return schema or {"type": "object"}


Biases: TypeAlias = Annotated[
    tuple[Bias, ...],
    BeforeValidator(_biases, json_schema_input_type=BiasForms),
    Field(
        json_schema_extra={"default": {}},
        description="By token ids, or by texts for each of their tokens. `false` bans a token.",
    ),
]


class NativeSamplingFields(SamplingFields):
    """Sampling fields with llama-server's defaults and its wider bounds."""

    temperature: float = Field(0.8, ge=0, le=1e6)
    top_k: int = Field(40, ge=-1, le=MAX_INT)
    top_p: float = Field(0.95, ge=0, le=1)
    min_p: float = Field(0.05, ge=0, le=1)
    frequency_penalty: float = Field(0.0, ge=-100, le=100)
    presence_penalty: float = Field(0.0, ge=-100, le=100)
    repeat_penalty: float = Field(1.0, ge=MIN_REPEAT_PENALTY, le=100)
    dry_penalty_last_n: int = Field(64, ge=-1, le=MAX_INT)
    dynatemp_range: float = Field(0.0, ge=0, le=100)
    mirostat_tau: float = Field(5.0, ge=0, le=100)
    samplers: SamplersField = None
    stop: Annotated[tuple[str, ...], BeforeValidator(_stops, json_schema_input_type=str | list[str])] = ()
    adaptive_target: float = Field(-1.0, le=1, json_schema_extra={"exclusiveMaximum": 0})
    adaptive_decay: float = Field(0.9, ge=0, le=0.99)
    min_keep: int = Field(0, ge=0, le=MAX_INT)

    @field_validator("adaptive_target")
    @classmethod
    def _no_adaptive_sampling(cls, target: float) -> float:
        if target >= 0:
            raise ValueError("is not supported: it should be negative")
        return target

    @field_validator("min_keep")
    @classmethod
    def _no_least_candidates(cls, count: int) -> int:
        if count > 1:
            raise ValueError("is not supported: it should be 0 or 1")
        return count


class NativeCompletionBody(NativeSamplingFields, GrammarFields, RefusingFields):
    """The body of a `/completion` request."""

    unsupported: ClassVar[Mapping[str, str]] = {
        "multimodal_data": "is not supported: this server's models take text only",
    }

    logit_bias: Biases = ()  # type: ignore[assignment]
    json_schema: Annotated[Schema, AfterValidator(_of_object)] | None = Field(
        None, description="An empty one stands for any object."
    )
    model: str | None = None
    prompt: Annotated[tuple[ReadPrompt, ...], BeforeValidator(read_mixed_prompts, json_schema_input_type=MixedForms)]
    n_predict: int | None = Field(None, ge=-1, le=MAX_INT, description="-1: up to the end of the slot.")
    max_tokens: int | None = Field(None, ge=-1, le=MAX_INT, description="The same as `n_predict`.")
    max_completion_tokens: int | None = Field(None, ge=-1, le=MAX_INT, description="The same as `n_predict`.")
    n_cmpl: int | None = Field(
        None,
        ge=1,
        le=MAX_CHOICES,
        description=f"Number of texts for each prompt. Times the number of prompts, at most {MAX_CHOICES}.",
    )
    n: int | None = Field(None, ge=1, le=MAX_CHOICES, description="The same as `n_cmpl`.")
    n_indent: int = Field(
        0, ge=0, le=MAX_INT, description="A line with fewer spaces and tabs at its beginning ends the text."
    )
    t_max_predict_ms: int = Field(
        0,
        ge=-1,
        le=MAX_MILLISECONDS,
        description="Milliseconds of generation after which a line break ends the text. 0 or less: no limit.",
    )
    n_probs: int | None = Field(None, ge=0, le=MAX_PROBS, description="Number of the likeliest tokens to return.")
    logprobs: int | None = Field(None, ge=0, le=MAX_PROBS, description="The same as `n_probs`.")
    post_sampling_probs: bool = Field(
        False, description="Probabilities after the samplers, of the tokens that these leave."
    )
    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    response_fields: list[str] = Field(
        [],
        max_length=MAX_RESPONSE_FIELDS,
        description="Fields to return, and `outer/inner` for one field of an object. Empty: all.",
    )
    id_slot: int = Field(-1, ge=-1, le=MAX_INT, description="Slot to use if it is free.")
    n_cache_reuse: int = Field(0, ge=0, le=MAX_INT, description="Prompts are cached by equal beginnings only.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    sse_ping_interval: int | None = Field(None, ge=-1, le=MAX_INT, description="The server chooses the interval.")
    grammar_lazy: Literal[False] = False
    backend_sampling: bool = Field(False, description="The server chooses where tokens are sampled.")
    verbose: bool = False

    _within_limit = field_validator("n_cmpl", "n")(bounded_choices)

    @property
    def limit(self) -> int | None:
        """Maximum number of tokens of a text: up to the end of its slot if it is negative. None if it is not given."""
        given = (self.n_predict, self.max_completion_tokens, self.max_tokens)
        return next((limit for limit in given if limit is not None), None)

    @property
    def probs(self) -> int:
        """Number of the likeliest tokens to return."""
        return (self.logprobs if self.n_probs is None else self.n_probs) or 0

    @override
    def sampling(self) -> Sampling:
        """Return the engine's `Sampling`, without the biases of texts."""
        ids = tuple((token, bias) for token, bias in self.logit_bias if isinstance(token, int))
        return super().sampling().replaced(logit_bias=ids)

    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id and prompts. Raises `RequestError`.

        A limit beyond the end of the slot is cut, as in llama-server.
        """
        return cut_at_the_end(self.generation(), self.limit).replaced(
            n=self.n_cmpl or self.n or 1,
            stream=self.stream,
            grammar=self.constraint(),
            logprobs=self.probs or None,
            sampled_logprobs=self.post_sampling_probs,
            token_ids=self.stream or self.return_tokens,
            progress=self.stream and (self.return_progress or self.timings_per_token),
            indent=self.n_indent,
            slot=None if self.id_slot < 0 else self.id_slot,
            line_seconds=self.t_max_predict_ms / 1000 if self.t_max_predict_ms > 0 else None,
        )
