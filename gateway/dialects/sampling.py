"""The fields by which OpenAI's and llama.cpp's clients say how text is to be generated."""

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from engine import Sampling

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


class SamplingFields(BaseModel):
    """Fields shared by every route that generates. Strict: `"5"` is no integer and `true` no number.

    `null` means that a field is not given. Fields we do not know are kept in `model_extra`.
    OpenAI's defaults where OpenAI has one; else the value that changes nothing.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, ge=0, le=1)
    top_k: int = Field(0, ge=-1, le=MAX_INT)
    min_p: float = Field(0.0, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    repeat_penalty: float = Field(1.0, ge=LEAST_REPEAT_PENALTY, le=10)
    repeat_last_n: int = Field(64, ge=-1, le=MAX_INT)
    logit_bias: Annotated[tuple[tuple[int, float], ...], BeforeValidator(_biases)] = ()
    ignore_eos: bool = False
    stop: Annotated[tuple[str, ...], BeforeValidator(_stop_strings)] = ()
    cache_prompt: bool = True

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: object) -> object:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data

    def sampling(self) -> Sampling:
        """The same in the engine's words.

        A `top_k` of -1 keeps all candidates and a `seed` of -1 draws one, as in llama.cpp. Other seeds count
        modulo 2**32.
        """
        return Sampling(
            temperature=self.temperature,
            top_k=max(self.top_k, 0),
            top_p=self.top_p,
            min_p=self.min_p,
            seed=None if self.seed in (None, -1) else self.seed & 0xFFFF_FFFF,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repeat_penalty=self.repeat_penalty,
            repeat_last_n=self.repeat_last_n,
            logit_bias=self.logit_bias,
            ignore_eos=self.ignore_eos,
        )
