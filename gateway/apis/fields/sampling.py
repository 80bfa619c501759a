"""The fields by which OpenAI's, llama.cpp's and vLLM's clients say how text is to be generated."""

import re
from dataclasses import fields
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from engine import GenerationRequest, Prompt, Sampling
from gateway.apis.fields.base import Fields

MAX_INT = 2**31 - 1
"""The largest integer that llama.cpp takes, for token ids and counts alike."""

LARGEST_BIAS = 100
MAX_BIASES = 1024
LEAST_REPEAT_PENALTY = 0.01
"""Logits are divided by it in single precision: one near 0 leaves no finite one."""

_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")
"""One way to write each, so that no token is biased twice."""

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_STOP_TOKENS = 128

MAX_SALT = 256
"""Characters. A random key needs 43; a longer name than this names nothing better."""

MAX_LOGPROBS = 20
"""Alternatives of each token. OpenAI's completions stop at 5, its chat at this."""

MAX_BREAKERS = 16
MAX_BREAKER_BYTES = 40
"""llama.cpp reads no more of one, and looks through the whole vocabulary for each."""

SamplerName: TypeAlias = Literal[
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"
]

StopForm: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
StopForms: TypeAlias = StopForm | Annotated[list[StopForm], Field(max_length=MAX_STOPS)]
BiasForms: TypeAlias = Annotated[
    dict[str, Annotated[float, Field(ge=-LARGEST_BIAS, le=LARGEST_BIAS)]], Field(max_length=MAX_BIASES)
]

_CONVERTED = {"top_k", "seed", "repeat_penalty", "dry_sequence_breakers", "samplers"}
_COPIED = tuple(field.name for field in fields(Sampling) if field.name not in _CONVERTED)
"""Fields that mean the same to the engine."""

_STOP_FORMS = "should be a string or an array of strings"


def _stop_strings(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise ValueError(_STOP_FORMS)  # noqa: TRY004 (pydantic reports ValueError only)
    if len(stops) > MAX_STOPS:
        raise ValueError(f"should have at most {MAX_STOPS} strings")
    if not all(isinstance(stop, str) for stop in stops):
        raise ValueError(_STOP_FORMS)
    if not all(0 < len(stop) <= MAX_STOP_LENGTH for stop in stops):
        raise ValueError(f"should have strings of 1 to {MAX_STOP_LENGTH} characters")
    return tuple(stops)


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, dict):
        raise ValueError("should be an object of token ids and biases")  # noqa: TRY004 (pydantic reports ValueError only)
    if len(value) > MAX_BIASES:
        raise ValueError(f"should have at most {MAX_BIASES} biases")
    return tuple((_token_id(key), _bias(bias)) for key, bias in value.items())


def _token_id(key: str) -> int:
    if not _TOKEN_ID.fullmatch(key) or int(key) > MAX_INT:
        raise ValueError(f"should have token ids as its keys, not {key[:40]!r}")
    return int(key)


def _bias(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST_BIAS:
        raise ValueError(f"should have numbers from -{LARGEST_BIAS} to {LARGEST_BIAS} as its values")
    return float(value)


class SamplingFields(Fields):
    """Fields shared by every route that generates: OpenAI's, llama.cpp's, and two of vLLM's for the same.

    OpenAI's defaults where OpenAI has one; else the value that changes nothing. The bounds keep llama.cpp's single
    precision finite and its integers in range; `Sampling` tells what each field means.
    """

    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, ge=0, le=1)
    top_k: int = Field(0, ge=-1, le=MAX_INT)
    min_p: float = Field(0.0, ge=0, le=1)
    typical_p: float = Field(1.0, ge=0, le=1)
    top_n_sigma: float = Field(-1.0, ge=-1, le=100)
    seed: int | None = Field(None, ge=-(2**63), le=2**64 - 1)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    repeat_penalty: float = Field(1.0, ge=LEAST_REPEAT_PENALTY, le=10)
    repetition_penalty: float | None = Field(None, ge=LEAST_REPEAT_PENALTY, le=10)
    repeat_last_n: int = Field(64, ge=-1, le=MAX_INT)
    dry_multiplier: float = Field(0.0, ge=0, le=100)
    dry_base: float = Field(1.75, ge=1, le=100)
    dry_allowed_length: int = Field(2, ge=0, le=MAX_INT)
    dry_penalty_last_n: int = Field(-1, ge=-1, le=MAX_INT)
    dry_sequence_breakers: list[str] = Field(
        ["\n", ":", '"', "*"],
        max_length=MAX_BREAKERS,
        description=f"Of 1 to {MAX_BREAKER_BYTES} bytes each, none of them zero.",
        json_schema_extra={"items": {"type": "string", "minLength": 1, "maxLength": MAX_BREAKER_BYTES}},
    )
    xtc_probability: float = Field(0.0, ge=0, le=1)
    xtc_threshold: float = Field(0.1, ge=0, le=1)
    dynatemp_range: float = Field(0.0, ge=0, le=2)
    dynatemp_exponent: float = Field(1.0, ge=0, le=100)
    mirostat: int = Field(0, ge=0, le=2)
    mirostat_tau: float = Field(5.0, ge=0, le=20)
    mirostat_eta: float = Field(0.1, ge=0, le=1)
    samplers: list[SamplerName] | None = Field(None, json_schema_extra={"uniqueItems": True})
    logit_bias: Annotated[tuple[tuple[int, float], ...], BeforeValidator(_biases, json_schema_input_type=BiasForms)] = (
        Field((), json_schema_extra={"default": {}, "propertyNames": {"pattern": f"^({_TOKEN_ID.pattern})$"}})
    )
    min_tokens: int = Field(0, ge=0, le=MAX_INT)
    ignore_eos: bool = False
    stop: Annotated[tuple[str, ...], BeforeValidator(_stop_strings, json_schema_input_type=StopForms)] = ()
    stop_token_ids: list[Annotated[int, Field(ge=0, le=MAX_INT)]] = Field([], max_length=MAX_STOP_TOKENS)
    cache_prompt: bool = True
    cache_salt: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_SALT,
        description="Cached prompts are shared only among requests with the same one.",
    )
    speculative: bool | None = Field(
        None,
        description="Whether several tokens are computed at once where the text seems to repeat what was said: always, "
        "never, or (null) where that is faster and no seed is given. What is drawn is the same.",
    )

    @field_validator("repetition_penalty")
    @classmethod
    def _one_name(cls, penalty: float, info: ValidationInfo) -> float:
        if info.data.get("repeat_penalty", 1.0) not in {1.0, penalty}:
            raise ValueError("means the same as repeat_penalty, which has another value")
        return penalty

    @field_validator("dry_sequence_breakers")
    @classmethod
    def _readable(cls, breakers: list[str]) -> list[str]:
        if not all(0 < len(text.encode()) <= MAX_BREAKER_BYTES and "\0" not in text for text in breakers):
            raise ValueError(f"should have strings of 1 to {MAX_BREAKER_BYTES} bytes, none of them zero")
        return breakers

    @field_validator("samplers")
    @classmethod
    def _distinct(cls, samplers: list[SamplerName]) -> list[SamplerName]:
        if len(set(samplers)) < len(samplers):
            raise ValueError("should have each name once")
        return samplers

    def sampling(self) -> Sampling:
        """Return the fields of the engine's `Sampling`.

        A `top_k` of -1 keeps all candidates and a `seed` of -1 draws one, as in llama.cpp. Other seeds count
        modulo 2**32.
        """
        return Sampling(
            **{name: getattr(self, name) for name in _COPIED},
            top_k=max(self.top_k, 0),
            seed=None if self.seed in (None, -1) else self.seed & 0xFFFF_FFFF,
            repeat_penalty=self.repeat_penalty if self.repetition_penalty is None else self.repetition_penalty,
            dry_sequence_breakers=tuple(self.dry_sequence_breakers),
            samplers=None if self.samplers is None else tuple(self.samplers),
        )

    def generation(self, request_id: str, prompts: tuple[Prompt, ...]) -> GenerationRequest:
        """Return the request for the prompts, with these fields; an API that has more options replaces theirs."""
        return GenerationRequest(
            id=request_id,
            prompts=prompts,
            stop=self.stop,
            stop_tokens=tuple(self.stop_token_ids),
            sampling=self.sampling(),
            cache_prompt=self.cache_prompt,
            cache_partition=self.cache_salt or "",
            speculative=self.speculative,
        )


class ReportFields(Fields):
    """What an answer tells of itself besides its text. Shared by the routes whose answers have room for it."""

    return_token_ids: bool = False
    timings: bool = False
    timings_per_token: bool = Field(False, json_schema_extra={"const": False})

    @field_validator("timings_per_token")
    @classmethod
    def _at_the_end_only(cls, wanted: bool) -> bool:
        if wanted:
            raise ValueError("is not supported; timings tells them once, at the end")
        return wanted
