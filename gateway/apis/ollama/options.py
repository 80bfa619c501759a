"""Fields `options`, `think`, `format` and `keep_alive` of Ollama's requests."""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from engine import Grammar
from gateway.apis.fields.constraints import json_object, json_schema
from gateway.apis.fields.json_types import by_json, of_json
from gateway.apis.fields.nested import Nested, read_nested, refusal
from gateway.apis.fields.sampling import MAX_INT, MIN_REPEAT_PENALTY, SamplingFields, StopStrings

_NO_EFFECT = "Has no effect: it is set where this server is started."
_REMOVED = "Has no effect, as in Ollama."


class Options(Nested):
    """Sampling options, with Ollama's defaults (`repeat_penalty` was 1.1 before 0.32.10) and llama-server's bounds."""

    num_predict: int = Field(
        -1, ge=-2, le=MAX_INT, description="Tokens to generate, at most up to the end of the slot. -1, -2: no limit."
    )
    num_keep: int = Field(4, ge=-1, le=MAX_INT)
    seed: int = Field(-1, ge=-(2**63), le=2**64 - 1)
    temperature: float = Field(0.8, ge=0, le=1e6)
    top_k: int = Field(40, ge=-1, le=MAX_INT)
    top_p: float = Field(0.9, ge=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)
    typical_p: float = Field(1.0, ge=0, le=1)
    repeat_last_n: int = Field(64, ge=-1, le=MAX_INT)
    repeat_penalty: float = Field(1.0, ge=MIN_REPEAT_PENALTY, le=100)
    presence_penalty: float = Field(0.0, ge=-100, le=100)
    frequency_penalty: float = Field(0.0, ge=-100, le=100)
    mirostat: int = Field(0, ge=0, le=2)
    mirostat_tau: float = Field(5.0, ge=0, le=100)
    mirostat_eta: float = Field(0.1, ge=0, le=1)
    stop: StopStrings = ()
    tfs_z: float | None = Field(None, description=_REMOVED)
    penalize_newline: bool | None = Field(None, description=_REMOVED)
    num_ctx: int | None = Field(None, description=_NO_EFFECT)
    num_batch: int | None = Field(None, description=_NO_EFFECT)
    num_gpu: int | None = Field(None, description=_NO_EFFECT)
    main_gpu: int | None = Field(None, description=_NO_EFFECT)
    num_thread: int | None = Field(None, description=_NO_EFFECT)
    numa: bool | None = Field(None, description=_NO_EFFECT)
    use_mmap: bool | None = Field(None, description=_NO_EFFECT)
    use_mlock: bool | None = Field(None, description=_NO_EFFECT)
    low_vram: bool | None = Field(None, description=_NO_EFFECT)
    f16_kv: bool | None = Field(None, description=_NO_EFFECT)
    logits_all: bool | None = Field(None, description=_NO_EFFECT)
    vocab_only: bool | None = Field(None, description=_NO_EFFECT)
    embedding_only: bool | None = Field(None, description=_NO_EFFECT)
    draft_num_predict: int | None = Field(None, description=_NO_EFFECT)

    @property
    def max_tokens(self) -> int | None:
        """Maximum length of the answer; None for no limit but the slot's."""
        return None if self.num_predict < 0 else self.num_predict

    def sampling(self) -> SamplingFields:
        """Return the options as the fields that the APIs share, whose narrower bounds do not hold here."""
        shared = {
            name: getattr(self, name) for name in Options.model_fields.keys() & SamplingFields.model_fields.keys()
        }
        return SamplingFields.model_construct(**shared, n_keep=self.num_keep)

    @property
    def given(self) -> set[str]:
        """Names of the options that the client has set, by the engine's names."""
        return {"keep" if name == "num_keep" else name for name in self.model_fields_set}


def _options(value: object) -> object:
    return read_nested(Options, value, "options") if isinstance(value, dict) else value


OptionsField: TypeAlias = Annotated[Options, BeforeValidator(_options)]

Think: TypeAlias = Annotated[
    Annotated[bool, of_json("boolean")] | Annotated[Literal["low", "medium", "high", "max"], of_json("string")],
    by_json("should be true, false or a string"),
]
"""The field `think`: whether a model that can reason does so, and how much."""


def think_variables(think: Think | None) -> dict[str, Any]:
    """Return the template's variables for a choice."""
    if think is None:
        return {}
    if isinstance(think, bool):
        return {"enable_thinking": think} if think else {"enable_thinking": False, "reasoning_effort": "none"}
    return {"enable_thinking": True, "reasoning_effort": think}


Format: TypeAlias = Annotated[
    Annotated[Literal["", "json"], of_json("string")] | Annotated[dict[str, Any], of_json("object")],
    by_json("should be a string or an object"),
]
"""The field `format`: JSON, or a JSON schema."""


def grammar_of(form: Format | None) -> Grammar | None:
    """Return the grammar of a format. Raises `RequestError` for a schema that is none."""
    if not form:
        return None
    try:
        return json_object() if form == "json" else json_schema(form)
    except ValueError as error:
        raise refusal("format", str(error)) from error


_DURATION = re.compile(r"-?(?:\d+(?:\.\d+)?(?:h|ms|m|s|us|µs|ns))+|-?\d+(?:\.\d+)?")
_STEP = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def _keep_alive(value: object) -> object:
    """Return the seconds of a duration in Go's format, or of a number; negative ones mean for ever."""
    if not isinstance(value, str):
        return value
    if not _DURATION.fullmatch(value):
        raise ValueError('should be seconds, or a duration such as "10m" or "24h"')
    steps = _STEP.findall(value)
    seconds = sum(float(amount) * _SECONDS[unit] for amount, unit in steps) if steps else abs(float(value))
    return -seconds if value.startswith("-") else seconds


_Seconds: TypeAlias = Annotated[float, Field(le=2**31)]  # as `--idle-unload`

KeepAlive: TypeAlias = Annotated[
    _Seconds,
    BeforeValidator(_keep_alive, json_schema_input_type=_Seconds | Annotated[str, Field(pattern=_DURATION.pattern)]),
    Field(
        description="Seconds that a model on demand stays loaded after the request; negative: until another needs it."
    ),
]
