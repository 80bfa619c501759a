"""Sampling fields: those of OpenAI, llama.cpp and vLLM."""

import re
from typing import Annotated, TypeAlias, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from engine import GenerationRequest, Prompt, SamplerName, Sampling
from gateway.apis.fields.base import Fields
from gateway.apis.fields.json_types import wrong_type

MAX_INT = 2**31 - 1
"""Largest integer that llama.cpp accepts, for token ids and counts."""

MAX_BIAS = 100
MAX_BIASES = 1024
MIN_REPEAT_PENALTY = 0.01
"""Lower bound: logits are divided by it in single precision, and a value near 0 would make them infinite."""

_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")
"""Canonical decimal form of a token id, so that a token cannot have two biases."""

MAX_STOPS = 2**10
MAX_STOP_LENGTH = 1024
MAX_STOP_TOKENS = 128

MAX_SALT = 256
"""Maximum of characters. A random key of 256 bits needs only 43."""

MAX_LOGPROBS = 20
"""Maximum of alternatives per token. This is the limit of OpenAI's chat; the limit of its completions is 5."""

MAX_ADAPTERS = 64
MAX_ADAPTER_SCALE = 100

MAX_BREAKERS = 16
MAX_BREAKER_BYTES = 40
"""Maximum of bytes that llama.cpp reads of one breaker. It searches the whole vocabulary for each breaker."""

StopForm: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
StopForms: TypeAlias = StopForm | Annotated[list[StopForm], Field(max_length=MAX_STOPS)]
BiasForms: TypeAlias = Annotated[
    dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]], Field(max_length=MAX_BIASES)
]

_CONVERTED = {"top_k", "seed", "repeat_penalty", "repeat_last_n", "dry_sequence_breakers", "samplers"}
_COPIED = tuple(name for name in Sampling.__struct_fields__ if name not in _CONVERTED)
"""Fields that have the same meaning in the engine's `Sampling`."""

_ENGINE_NAMES = {"repetition_penalty": "repeat_penalty", "n_keep": "keep"}
_DEFAULTED = set(Sampling.__struct_fields__) | {"stop", *_ENGINE_NAMES}
"""Fields for which the operator may set a default."""

_STOP_FORMS = "should be a string or an array of strings"


def _stop_strings(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise wrong_type(_STOP_FORMS)
    if len(stops) > MAX_STOPS:
        raise ValueError(f"should have at most {MAX_STOPS} strings")
    if not all(isinstance(stop, str) for stop in stops):
        raise wrong_type(_STOP_FORMS)
    if not all(0 < len(stop) <= MAX_STOP_LENGTH for stop in stops):
        raise ValueError(f"should have strings of 1 to {MAX_STOP_LENGTH} characters")
    return tuple(stops)


StopStrings: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_stop_strings, json_schema_input_type=StopForms)]
"""One stop string or several."""


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, dict):
        raise wrong_type("should be an object of token ids and biases")
    if len(value) > MAX_BIASES:
        raise ValueError(f"should have at most {MAX_BIASES} biases")
    return tuple((_token_id(key), _bias(bias)) for key, bias in value.items())


def _token_id(key: str) -> int:
    if not _TOKEN_ID.fullmatch(key) or int(key) > MAX_INT:
        raise ValueError(f"should have token ids as its keys, not {key[:40]!r}")
    return int(key)


def _bias(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MAX_BIAS:
        raise ValueError(f"should have numbers from -{MAX_BIAS} to {MAX_BIAS} as its values")
    return float(value)


class AdapterScale(Fields):
    """A LoRA adapter and its scale, as in llama-server."""

    id: int = Field(ge=0, le=MAX_INT)
    scale: float = Field(ge=-MAX_ADAPTER_SCALE, le=MAX_ADAPTER_SCALE)


def each_once(scales: list[AdapterScale]) -> list[AdapterScale]:
    """Return the scales of adapters, which should have different ids."""
    if len({one.id for one in scales}) < len(scales):
        raise ValueError("should have each id once")
    return scales


class SamplingFields(Fields):
    """Fields shared by every endpoint that generates: those of OpenAI and llama.cpp, and two synonyms of vLLM's.

    A default is OpenAI's if OpenAI has the field, else the value without effect. The bounds keep llama.cpp's single
    precision finite and its integers in range. `Sampling` describes each field.
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
    repeat_penalty: float = Field(1.0, ge=MIN_REPEAT_PENALTY, le=10)
    repetition_penalty: float | None = Field(
        None,
        ge=MIN_REPEAT_PENALTY,
        le=10,
        description="The same as `repeat_penalty`. Alone, it counts the whole text, as in vLLM.",
    )
    repeat_last_n: int = Field(64, ge=-1, le=MAX_INT)
    dry_multiplier: float = Field(0.0, ge=0, le=100)
    dry_base: float = Field(1.75, ge=1, le=100)
    dry_allowed_length: int = Field(2, ge=0, le=MAX_INT)
    dry_penalty_last_n: int = Field(-1, ge=-1, le=MAX_INT)
    dry_sequence_breakers: list[str] = Field(
        ["\n", ":", '"', "*"],
        max_length=MAX_BREAKERS,
        description=f"Strings of 1 to {MAX_BREAKER_BYTES} bytes each, without zero bytes.",
        json_schema_extra={"items": {"type": "string", "minLength": 1, "maxLength": MAX_BREAKER_BYTES}},
    )
    xtc_probability: float = Field(0.0, ge=0, le=1)
    xtc_threshold: float = Field(0.1, ge=0, le=1)
    dynatemp_range: float = Field(0.0, ge=0, le=2)
    dynatemp_exponent: float = Field(1.0, ge=0, le=100)
    mirostat: int = Field(0, ge=0, le=2)
    mirostat_tau: float = Field(5.0, ge=0, le=20)
    mirostat_eta: float = Field(0.1, ge=0, le=1)
    samplers: list[SamplerName] | None = Field(
        None, max_length=len(get_args(SamplerName)), json_schema_extra={"uniqueItems": True}
    )
    logit_bias: Annotated[tuple[tuple[int, float], ...], BeforeValidator(_biases, json_schema_input_type=BiasForms)] = (
        Field((), json_schema_extra={"default": {}, "propertyNames": {"pattern": f"^({_TOKEN_ID.pattern})$"}})
    )
    min_tokens: int = Field(0, ge=0, le=MAX_INT)
    ignore_eos: bool = False
    stop: StopStrings = ()
    stop_token_ids: list[Annotated[int, Field(ge=0, le=MAX_INT)]] = Field([], max_length=MAX_STOP_TOKENS)
    n_keep: int = Field(
        0,
        ge=-1,
        le=MAX_INT,
        description="With `--context-shift`: prompt tokens that stay when the context is full. -1: the whole prompt.",
    )
    n_discard: int = Field(
        0,
        ge=0,
        le=MAX_INT,
        description="With `--context-shift`: tokens that are discarded at once when the context is full. 0: half of "
        "those that need not stay.",
    )
    cache_prompt: bool = True
    cache_salt: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_SALT,
        description="Requests share cached prompts only with requests that have the same salt.",
    )
    priority: int | None = Field(
        None,
        ge=-MAX_INT,
        le=MAX_INT,
        description="Requests of one client with lower values leave the queue earlier. It does not change "
        "the turns among clients. `null`: the priority of the API key, or 0.",
    )
    speculative: bool | None = Field(
        None,
        description="Speculative decoding: several tokens are computed at once where the text seems to repeat earlier "
        "text. `true`: always. `false`: never. `null`: if it is faster and no seed is given. The sampled tokens are "
        "the same in each case.",
    )

    lora: list[AdapterScale] | None = Field(
        None,
        max_length=MAX_ADAPTERS,
        description="LoRA adapters by their ids in `/lora-adapters`; others are not applied. `null`: those of the "
        "model name, otherwise the scales of `/lora-adapters`.",
    )

    _once = field_validator("lora")(each_once)

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

    @property
    def _penalizes_all(self) -> bool:
        """True for vLLM's penalty alone, which counts the whole text, and not llama.cpp's window."""
        given = self.model_fields_set & {"repetition_penalty", "repeat_penalty", "repeat_last_n"}
        return given == {"repetition_penalty"}

    @property
    def _chosen(self) -> frozenset[str]:
        """Names of the engine's fields that defaults of the server do not replace."""
        given = {_ENGINE_NAMES.get(name, name) for name in self.model_fields_set & _DEFAULTED}
        return frozenset(given | {"repeat_last_n"} if self._penalizes_all else given)

    def sampling(self) -> Sampling:
        """Return the engine's `Sampling`.

        A `top_k` of -1 keeps all candidates and a `seed` of -1 means a random seed, as in llama.cpp. Other seeds are
        taken modulo 2**32.
        """
        return Sampling(
            **{name: getattr(self, name) for name in _COPIED},
            top_k=max(self.top_k, 0),
            seed=None if self.seed in (None, -1) else self.seed & 0xFFFF_FFFF,
            repeat_penalty=self.repeat_penalty if self.repetition_penalty is None else self.repetition_penalty,
            repeat_last_n=-1 if self._penalizes_all else self.repeat_last_n,
            dry_sequence_breakers=tuple(self.dry_sequence_breakers),
            samplers=None if self.samplers is None else tuple(self.samplers),
        )

    def generation(self, prompts: tuple[Prompt, ...] = ()) -> GenerationRequest:
        """Return the engine's request with these fields. APIs replace its other fields.

        The id, and the prompts if a template renders them, are set later.
        """
        return GenerationRequest(
            id="",
            prompts=prompts,
            stop=self.stop,
            stop_tokens=tuple(self.stop_token_ids),
            sampling=self.sampling(),
            given=self._chosen,
            keep=self.n_keep,
            discard=self.n_discard,
            cache_prompt=self.cache_prompt,
            cache_partition=self.cache_salt or "",
            speculative=self.speculative,
            priority=self.priority,
            adapters=None if self.lora is None else tuple((one.id, one.scale) for one in self.lora),
        )


def cut_at_the_end(request: GenerationRequest, limit: int | None) -> GenerationRequest:
    """Return a request whose answer has at most `limit` tokens, or fewer where its slot ends earlier.

    A negative limit is none. Without one, the operator's applies.
    """
    if limit is not None and limit < 0:
        limit = MAX_INT
    return request.replaced(max_tokens=0 if limit == 0 else None, default_max_tokens=limit)


class ReportFields(Fields):
    """Options for extra fields of an answer, shared by the endpoints that have such fields."""

    return_token_ids: bool = False
    timings: bool = False


class StreamReportFields(Fields):
    """llama-server's options for extra fields of the events of a stream."""

    timings_per_token: bool = Field(False, description="Timings in each event of a stream.")
    return_progress: bool = Field(False, description="Events with the progress of the prompt in a stream.")
