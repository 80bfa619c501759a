"""Requests to the engine."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters, by llama.cpp's names. The defaults sample the model's own distribution."""

    temperature: float = 1.0
    """Divides the logits; 0 is greedy."""
    top_k: int = 0
    """Keep the k most probable candidates; 0 keeps all."""
    top_p: float = 1.0
    """Keep the most probable candidates that reach this mass."""
    min_p: float = 0.0
    """Drop candidates below this share of the best probability."""
    seed: int | None = None
    """32 bits; None draws one. Choices of one request draw from seed, seed + 1, … modulo 2**32."""
    frequency_penalty: float = 0.0
    """Subtracted for each time a candidate was generated."""
    presence_penalty: float = 0.0
    """Subtracted once if a candidate was generated."""
    repeat_penalty: float = 1.0
    """Divides the logits of the last `repeat_last_n` tokens, prompt included; 1 is off."""
    repeat_last_n: int = 64
    """Tokens that `repeat_penalty` looks back; 0 is off, -1 the whole context."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, bias) pairs added to the logits."""
    ignore_eos: bool = False
    """True to continue up to `max_tokens`."""
    typical_p: float = 1.0
    """Keep the candidates of typical information content that reach this mass; 1 is off."""
    top_n_sigma: float = -1.0
    """Keep candidates within so many standard deviations of the best logit; 0 or less is off."""
    xtc_probability: float = 0.0
    """Probability of dropping all likely candidates but the least likely of them; 0 is off."""
    xtc_threshold: float = 0.1
    """Probability of a likely candidate for XTC; above 0.5 is off."""
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
    """Tokens that DRY looks back; 0 is off, -1 the whole context."""
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    """Strings that end a repetition."""
    mirostat: int = 0
    """Version of Mirostat, 1 or 2, which replaces all truncation; 0 is off."""
    mirostat_tau: float = 5.0
    """Target surprise, in bits."""
    mirostat_eta: float = 0.1
    """Learning rate."""
    samplers: tuple[str, ...] | None = None
    """Names and order of the samplers; None takes llama.cpp's order."""
    min_tokens: int = 0
    """Tokens to generate before one may end the choice or complete a stop string (as in vLLM)."""


MOST_GRAMMAR_CHARACTERS = 2**18
"""Of a source. 128 functions of 20 properties take up to 240,000 in the formats of some model families."""


class GrammarKind(StrEnum):
    """The language of a grammar."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    GBNF = "gbnf"


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint on the whole text of every choice."""

    kind: GrammarKind
    """The language of `source`."""
    source: str
    """A JSON schema as JSON text, a regular expression, or a grammar."""


@dataclass(frozen=True, slots=True)
class Infill:
    """A fill-in-the-middle prompt: asks for the text between two others. Only some models support it."""

    prefix: str
    suffix: str


Prompt: TypeAlias = str | tuple[int, ...] | Infill
"""A text, which the engine tokenises; token ids; or a fill-in-the-middle prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One or several prompts, each with `n` answers.

    Choice `p * n + i` is answer `i` of prompt `p`. Every choice is a sequence of its own.
    """

    id: str
    """Identifies the request in the logs of both processes; need not be unique."""
    prompts: tuple[Prompt, ...]
    """The prompts."""
    n: int = 1
    """Answers for each prompt."""
    max_tokens: int | None = None
    """Maximum number of generated tokens of a choice; None means up to the end of the slot."""
    stop: tuple[str, ...] = ()
    """Strings that end a choice and are not part of its text."""
    stop_tokens: tuple[int, ...] = ()
    """Token ids that end a choice and are not part of its text."""
    sampling: Sampling = field(default_factory=Sampling)
    """Sampling parameters."""
    stream: bool = False
    """True to send text as it comes; otherwise each choice arrives whole in its `Finished`."""
    cache_prompt: bool = True
    """True to reuse cells of earlier prompts, and to keep those of this prompt for later ones."""
    cache_partition: str = ""
    """Cells are reused only within the same partition."""
    grammar: Grammar | None = None
    """Constraint on the text; None for none."""
    speculative: bool | None = None
    """True to compute draft tokens always, False never, None where it is measured to be faster and no seed asks for
    repeatable results. The text does not change, except by rounding.
    """
    prediction: str = ""
    """A text that the answers may repeat, wholly or in parts."""
    echo: bool = False
    """True to begin each choice's text with its prompt, in which stop strings do not count. Requested details begin
    with the prompt's tokens; the first one has no log-probability.
    """
    logprobs: int | None = None
    """Number of alternatives to send for each token, with its own log-probability under the model's unchanged
    distribution; None sends neither.
    """
    token_ids: bool = False
    """True to send the choice's tokens."""
    show_special: bool = False
    """True to show control tokens in the text by their names, for parsers that need them."""

    @property
    def parts(self) -> int:
        """Number of choices, each of which ends on its own."""
        return len(self.prompts) * self.n


EmbeddingInput: TypeAlias = str | tuple[int, ...]
"""A text, which the engine tokenises, or token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRequest:
    """Texts, each of which gets one vector."""

    id: str
    """Identifies the request in the logs of both processes; need not be unique."""
    inputs: tuple[EmbeddingInput, ...]
    """The inputs."""

    @property
    def parts(self) -> int:
        """Number of inputs, each of which ends on its own."""
        return len(self.inputs)


Request: TypeAlias = GenerationRequest | EmbeddingRequest
"""Queued in turn, holds KV cells, and is released by a cancel."""
