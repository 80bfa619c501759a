"""Requests that the engine accepts."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias

from msgspec import Struct, structs

from engine.prompt import Prompt

SamplerName: TypeAlias = Literal[
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", "infill"
]
"""Names of the samplers."""

SAMPLER_ORDER: tuple[SamplerName, ...] = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
"""The samplers of a request that names none, in llama.cpp's order."""


class _Part(Struct, frozen=True, omit_defaults=True):
    """Base class of what a request consists of."""

    def replaced(self, **fields: Any) -> Self:  # noqa: ANN401 (of any field)
        """Return a copy with other values of some fields."""
        return structs.replace(self, **fields)


class Sampling(_Part, frozen=True, kw_only=True):
    """Sampling parameters, by llama.cpp's names. The defaults sample the model's own distribution."""

    temperature: float = 1.0
    """Divisor of the logits; 0 is greedy."""
    top_k: int = 0
    """Keep the k most probable candidates; 0 keeps all."""
    top_p: float = 1.0
    """Keep the most probable candidates that reach this mass."""
    min_p: float = 0.0
    """Drop candidates below this share of the best probability."""
    seed: int | None = None
    """32-bit seed; None draws a random one. Choices of one request use seed, seed + 1, … modulo 2**32."""
    frequency_penalty: float = 0.0
    """Penalty per earlier occurrence of a candidate in the generated text, subtracted from its logit."""
    presence_penalty: float = 0.0
    """Penalty if a candidate occurs in the generated text, subtracted once from its logit."""
    repeat_penalty: float = 1.0
    """Divisor of the logits of the last `repeat_last_n` tokens, prompt included; 1 is off."""
    repeat_last_n: int = 64
    """Window of `repeat_penalty` in tokens; 0 is off, -1 the whole context."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, bias) pairs added to the logits."""
    ignore_eos: bool = False
    """True to ignore end-of-generation tokens and continue up to `max_tokens`."""
    typical_p: float = 1.0
    """Keep the candidates of typical information content that reach this mass; 1 is off."""
    top_n_sigma: float = -1.0
    """Keep candidates within this many standard deviations of the best logit; 0 or less is off."""
    xtc_probability: float = 0.0
    """Probability of dropping all likely candidates except the least likely of them; 0 is off."""
    xtc_threshold: float = 0.1
    """Minimum probability of a likely candidate for XTC; above 0.5 is off."""
    dynatemp_range: float = 0.0
    """Maximum change of the temperature by the entropy; 0 is off."""
    dynatemp_exponent: float = 1.0
    """Exponent of the entropy in the change of the temperature."""
    dry_multiplier: float = 0.0
    """Strength of the penalty on tokens that would extend a repetition; 0 is off."""
    dry_base: float = 1.75
    """Base of the penalty's growth with the length of the repetition."""
    dry_allowed_length: int = 2
    """Repetitions up to this length, in tokens, are not penalised."""
    dry_penalty_last_n: int = -1
    """Window of DRY in tokens; 0 is off, -1 the whole context."""
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    """Strings that end a repetition."""
    mirostat: int = 0
    """Version of Mirostat, 1 or 2, which replaces all truncation samplers; 0 is off."""
    mirostat_tau: float = 5.0
    """Target surprise of Mirostat, in bits."""
    mirostat_eta: float = 0.1
    """Learning rate of Mirostat."""
    samplers: tuple[str, ...] | None = None
    """Names of the samplers, in order; None takes llama.cpp's order."""
    min_tokens: int = 0
    """Minimum number of generated tokens before a token may end the choice or complete a stop string (as in vLLM)."""


MOST_GRAMMAR_CHARACTERS = 2**18
"""Maximum length of a grammar source. 128 functions of 20 properties take up to 240,000 characters in some formats."""


class GrammarKind(StrEnum):
    """Language of a grammar."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    GBNF = "gbnf"


class Grammar(_Part, frozen=True):
    """Constraint on the whole text of every choice."""

    kind: GrammarKind
    """Language of `source`."""
    source: str
    """JSON schema as JSON text, regular expression, or grammar."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema that is refused if a part of it cannot be enforced. By default such parts are left out."""
    options = schema.get("x-guidance", {})
    return {**schema, "x-guidance": {"lenient": False, **options} if isinstance(options, dict) else options}


class Reasoning(_Part, frozen=True, kw_only=True):
    """Place of the model's reasoning in the text of a choice, and its end."""

    budget: int | None = None
    """Maximum number of reasoning tokens. After them `closing` is forced, and the text goes on behind it. None sets no
    limit."""
    message: str = ""
    """Text that is forced before `closing` at the limit."""
    opening: str
    """Text before the reasoning. Only whitespace may come before it."""
    between: str = ""
    """Text that may also come before `opening`, if the family begins a further message with it."""
    closing: str
    """Text after the reasoning. Both may be names of control tokens."""
    call: str = ""
    """Text that also ends the reasoning, because it begins a call; empty if calls do not end it."""
    opened: bool
    """True if the prompt ends inside the reasoning, so that the text begins in it."""
    controlled: bool = False
    """True if the client may end the reasoning while it runs."""


AdapterSet: TypeAlias = tuple[tuple[int, float], ...]
"""LoRA adapters and their scales: ids in ascending order, no scale of 0. Empty for the model itself."""


def adapter_set(scales: Iterable[tuple[int, float]]) -> AdapterSet:
    """Return the adapters with a scale other than 0, in ascending order of their ids."""
    return tuple(sorted((id_, scale) for id_, scale in scales if scale))


class _Queued(_Part, frozen=True, kw_only=True):
    """Base class of the requests, which wait in a queue."""

    id: str
    """Request id in the logs of both processes; need not be unique."""
    client: str = ""
    """Client that shares the intake and the queue fairly with others. Empty for all requests without a name."""
    weight: float = 1.0
    """Tokens of this client for each token of a client of weight 1, while both wait."""
    priority: int | None = None
    """Requests of one client with lower values leave the queue earlier (as in vLLM). None is 0."""


class GenerationRequest(_Queued, frozen=True, kw_only=True):
    """Request to generate `n` choices for each of one or several prompts.

    Choice `p * n + i` is choice `i` of prompt `p`. Every choice is one sequence.
    """

    prompts: tuple[Prompt, ...]
    """One or several prompts, in the order of their choices."""
    n: int = 1
    """Number of choices per prompt."""
    max_tokens: int | None = None
    """Maximum number of generated tokens per choice; None generates up to `default_max_tokens`."""
    default_max_tokens: int | None = None
    """Maximum without `max_tokens`, or fewer tokens where the slot ends earlier; None generates up to its end."""
    keep: int = 0
    """First prompt tokens that stay when the context is full and is shifted; -1 is the whole prompt. A token that the
    model adds at the beginning stays, too.
    """
    discard: int = 0
    """Tokens that are discarded at once when the context is full; 0 discards half of those that need not stay."""
    stop: tuple[str, ...] = ()
    """Strings that end a choice and are not part of its text."""
    stop_tokens: tuple[int, ...] = ()
    """Token ids that end a choice and are not part of its text."""
    sampling: Sampling = Sampling()
    """Sampling parameters of every choice."""
    given: frozenset[str] = frozenset()
    """Names of the fields, of this class and of `sampling`, that the client sets: no default of the server replaces
    them.
    """
    stream: bool = False
    """True to send text as it is generated; otherwise each choice arrives at its end."""
    cache_prompt: bool = True
    """True to reuse the KV cells of earlier prompts, and to cache the cells of this prompt."""
    slot: int | None = None
    """`seq_id` of the slot to use if it is free; None lets the engine choose. An id without a slot is None."""
    cache_partition: str = ""
    """Partition of the prefix cache. KV cells are reused only within one partition."""
    label: int | None = None
    """Label of the prompts in `HeldPrefix`; None leaves them out there."""
    adapters: tuple[tuple[int, float], ...] | None = None
    """(id, scale) pairs of the LoRA adapters to apply, each id once; None applies none. The cells of different sets of
    adapters are never shared."""
    grammar: Grammar | None = None
    """Constraint on the text; None leaves it free."""
    reasoning: Reasoning | None = None
    """Place and limit of the model's reasoning, whose tokens are counted; None if the model has none."""
    speculative: bool | None = None
    """True always computes draft tokens, False never. None computes them where that is measured to be faster and no
    seed requests repeatable results. The text does not change, except by rounding.
    """
    prediction: str = ""
    """Text that the choices may repeat, wholly or in parts; a source of draft tokens."""
    echo: bool = False
    """True to begin each choice's text with its prompt, where stop strings have no effect. Requested details begin with
    the prompt's tokens; the first one has no log-probability.
    """
    logprobs: int | None = None
    """Number of alternatives per token. Each token also has its own log-probability under the model's unmodified
    distribution; None sends neither.
    """
    sampled_logprobs: bool = False
    """True to replace the model's distribution in `logprobs` by the one that the samplers leave and a token is drawn
    from. Tokens that cannot be drawn have no place among the alternatives.
    """
    token_ids: bool = False
    """True to send the tokens of each choice."""
    progress: bool = False
    """True to send the progress of each prompt, and the time of the decode steps with each text."""
    indent: int = 0
    """Minimum of spaces and tabs at the beginning of every line but the first. A line with fewer ends the choice before
    its first other character.
    """
    line_seconds: float | None = None
    """Duration of a choice's decode steps after which a line break ends it, in seconds; None sets no limit."""
    show_special: bool = False
    """True to render control tokens in the text by their names, for parsers that need them."""

    @property
    def parts(self) -> int:
        """Number of choices. Each one ends independently."""
        return len(self.prompts) * self.n


class SlotAction(StrEnum):
    """Action on the cells of a slot."""

    SAVE = "save"
    """Write them to a file."""
    RESTORE = "restore"
    """Replace them by those in a file."""
    ERASE = "erase"
    """Drop them, and what begins alike in host memory."""


EmbeddingInput: TypeAlias = str | tuple[int, ...]
"""Text, which the engine tokenises, or token ids."""


class Ranking(_Part, frozen=True, kw_only=True):
    """Rule for scoring the inputs of a request, which are documents."""

    query: str
    """Query to which the documents are relevant or not."""
    document_tokens: int | None = None
    """Number of tokens after which a document is cut, approximately; None sets no limit."""


class EmbeddingRequest(_Queued, frozen=True, kw_only=True):
    """Request to compute one vector for each input, or its scores."""

    inputs: tuple[EmbeddingInput, ...]
    """One or several texts, in the order of their vectors. Documents to rank are strings."""
    ranking: Ranking | None = None
    """Rule for scoring the inputs, for a model that ranks; None asks for vectors."""
    truncation: int | None = None
    """Number of tokens at which inputs are cut, a document together with its query, which is never cut; -1 is as many
    as the model takes. None refuses inputs that are too long.
    """

    @property
    def parts(self) -> int:
        """Number of inputs. Each one ends independently."""
        return len(self.inputs)


Request: TypeAlias = GenerationRequest | EmbeddingRequest
"""A request that waits in a queue, holds KV cells, and releases them when it is cancelled."""
