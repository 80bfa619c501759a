"""Settings of sampling, for requests that do not choose."""

import logging
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from engine import SamplerName
from gateway.like.spellings import sampler_named
from gateway.settings.values import split_items

logger = logging.getLogger(__name__)

NO_BREAKERS = "none"

MAX_STOPS = 2**10
MAX_STOP_LENGTH = 1024
MAX_BREAKERS = 16
MAX_BREAKER_BYTES = 40

_MAX_INT = 2**31 - 1
_BIAS = re.compile(r"([0-9]{1,10})([+-][0-9]+(?:\.[0-9]+)?)")
_OF_THE_REQUEST = {"stop": "stop", "n_keep": "keep"}
"""Settings that are no parameters of `Sampling`, and the fields of `GenerationRequest` that they set."""


def _sampler_names(value: object) -> object:
    """Return names of samplers that are separated by semicolons or commas."""
    names = [name for item in split_items(value) for name in item.split(";") if name]
    samplers = list(map(sampler_named, names))
    if None in samplers:
        raise ValueError(f"{names[samplers.index(None)]!r} is not one of {', '.join(get_args(SamplerName))}")
    if len(set(samplers)) < len(samplers):
        raise ValueError("should have each name once")
    return samplers


def _biases(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not _BIAS.fullmatch(text):
            raise ValueError(f"{text!r} is not a token id and a bias, such as 15043+1 or 15043-1")
    return texts


def _texts(value: object) -> object:
    """Return one text or several, as they are: they may have commas."""
    return value if isinstance(value, list) else [value]


def _stops(stops: tuple[str, ...]) -> tuple[str, ...]:
    if len(stops) > MAX_STOPS:
        raise ValueError(f"should have at most {MAX_STOPS} texts")
    if not all(0 < len(stop) <= MAX_STOP_LENGTH for stop in stops):
        raise ValueError(f"should have texts of 1 to {MAX_STOP_LENGTH} characters")
    return stops


def _breakers(breakers: tuple[str, ...]) -> tuple[str, ...]:
    if len(breakers) > MAX_BREAKERS:
        raise ValueError(f"should have at most {MAX_BREAKERS} texts")
    if not all(0 < len(text.encode()) <= MAX_BREAKER_BYTES and "\0" not in text for text in breakers):
        raise ValueError(f"should have texts of 1 to {MAX_BREAKER_BYTES} bytes, none of them zero")
    return breakers


class SamplingSettings(BaseModel):
    """Parameters of sampling for requests that do not choose them. Without them, the model's file or the API does."""

    temperature: float | None = Field(None, ge=0, le=2, title="N", description="divisor of the logits; 0 is greedy")
    top_k: int | None = Field(None, ge=-1, le=_MAX_INT, title="N", description="most probable tokens to keep; 0: all")
    top_p: float | None = Field(None, ge=0, le=1, title="N", description="mass of the most probable tokens to keep")
    min_p: float | None = Field(
        None, ge=0, le=1, title="N", description="least share of the best probability that a token must have"
    )
    typical_p: float | None = Field(None, ge=0, le=1, title="N", description="mass of the typical tokens to keep")
    top_n_sigma: float | None = Field(
        None, ge=-1, le=100, title="N", description="standard deviations from the best logit to keep; -1: all"
    )
    seed: int | None = Field(None, ge=-1, le=2**32 - 1, title="N", description="seed; -1: a random one each time")
    frequency_penalty: float | None = Field(
        None, ge=-2, le=2, title="N", description="penalty for each earlier occurrence in the answer"
    )
    presence_penalty: float | None = Field(
        None, ge=-2, le=2, title="N", description="penalty for what occurs in the answer"
    )
    repeat_penalty: float | None = Field(
        None, ge=0.01, le=10, title="N", description="divisor of the logits of the last tokens"
    )
    repeat_last_n: int | None = Field(
        None, ge=-1, le=_MAX_INT, title="TOKENS", description="tokens that --repeat-penalty looks back; -1: all"
    )
    dry_multiplier: float | None = Field(None, ge=0, le=100, title="N", description="strength of DRY; 0: off")
    dry_base: float | None = Field(None, ge=1, le=100, title="N", description="base of DRY's penalty")
    dry_allowed_length: int | None = Field(
        None, ge=0, le=_MAX_INT, title="TOKENS", description="length of repetitions that DRY allows"
    )
    dry_penalty_last_n: int | None = Field(
        None, ge=-1, le=_MAX_INT, title="TOKENS", description="tokens that DRY looks back; -1: all"
    )
    dry_sequence_breakers: Annotated[tuple[str, ...], AfterValidator(_breakers), BeforeValidator(_texts)] = Field(
        (), title="TEXT", description="text that ends a repetition for DRY; repeatable; none: no such text"
    )
    xtc_probability: float | None = Field(None, ge=0, le=1, title="N", description="probability of XTC; 0: off")
    xtc_threshold: float | None = Field(None, ge=0, le=1, title="N", description="probability of a token for XTC")
    dynatemp_range: float | None = Field(
        None, ge=0, le=2, title="N", description="change of the temperature by the entropy; 0: none"
    )
    dynatemp_exponent: float | None = Field(
        None, ge=0, le=100, title="N", description="exponent of the entropy in --dynatemp-range"
    )
    mirostat: int | None = Field(None, ge=0, le=2, title="N", description="version of Mirostat; 0: off")
    mirostat_tau: float | None = Field(None, ge=0, le=20, title="N", description="target surprise of Mirostat")
    mirostat_eta: float | None = Field(None, ge=0, le=1, title="N", description="learning rate of Mirostat")
    samplers: Annotated[tuple[str, ...], BeforeValidator(_sampler_names)] = Field(
        (), title="NAMES", description="samplers in their order, separated by semicolons"
    )
    logit_bias: Annotated[tuple[str, ...], AfterValidator(_biases), BeforeValidator(split_items)] = Field(
        (), title="ID±BIAS", description="bias of a token, such as 15043+1; repeatable, or separated by commas"
    )
    ignore_eos: bool = Field(False, description="let answers go on behind the end of the text")
    stop: Annotated[tuple[str, ...], AfterValidator(_stops), BeforeValidator(_texts)] = Field(
        (), title="TEXT", description="text that ends an answer; repeatable"
    )
    n_keep: int | None = Field(
        None, ge=-1, le=_MAX_INT, title="TOKENS", description="with --context-shift: prompt tokens that stay; -1: all"
    )

    @property
    def chosen_sampling(self) -> Mapping[str, Any]:
        """Values that are set, by the names of the fields of the engine's requests and of their `Sampling`."""
        return self._sampling(self.model_fields_set)

    @property
    def other_sampling(self) -> Mapping[str, Any]:
        """Values that are not set: those of another server, whose command line was translated."""
        return self._sampling(SamplingSettings.model_fields.keys() - self.model_fields_set)

    def _sampling(self, names: Collection[str]) -> Mapping[str, Any]:
        chosen = {name: getattr(self, name) for name in SamplingSettings.model_fields if name in names}
        values = {name: value for name, value in chosen.items() if value not in (None, ()) and value is not False}
        if "logit_bias" in values:
            found = map(_BIAS.fullmatch, self.logit_bias)
            values["logit_bias"] = tuple((int(one[1]), float(one[2])) for one in found if one)
        if values.get("dry_sequence_breakers") == (NO_BREAKERS,):
            values["dry_sequence_breakers"] = ()
        if "top_k" in values:
            values["top_k"] = max(values["top_k"], 0)
        if values.get("seed") == -1:
            values["seed"] = None
        return {_OF_THE_REQUEST.get(name, name): value for name, value in values.items()}


def recommended_sampling(texts: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the sampling that a model's file recommends, as `chosen_sampling` does. Impossible values are left out."""
    try:
        return SamplingSettings.model_validate(texts).chosen_sampling
    except ValidationError as error:
        wrong = {str(one["loc"][0]) for one in error.errors()}
        left_out = {name: text for name, text in texts.items() if name in wrong}
        logger.warning("sampling that the model's file recommends is not possible, and left out", extra=left_out)
        return recommended_sampling({name: text for name, text in texts.items() if name not in wrong})
