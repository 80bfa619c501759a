"""What a caller asks of the engine."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is drawn, by llama.cpp's names. The defaults sample the model's own distribution.

    Attributes:
        temperature: 0 takes the likeliest token.
        top_k: keep the k likeliest candidates; 0 keeps all.
        top_p: keep the likeliest candidates that reach this mass.
        min_p: drop candidates below this share of the likeliest one.
        seed: 32 bits; None draws one. Choices of one request draw from seed, seed + 1, … modulo 2**32.
        frequency_penalty: subtracted for each time a candidate was generated.
        presence_penalty: subtracted once if a candidate was generated.
        repeat_penalty: divides the logits of tokens among the last `repeat_last_n`, prompt included; 1 is off.
        repeat_last_n: how far `repeat_penalty` looks back, in tokens; 0 is off, -1 the whole context.
        typical_p: keep the candidates of typical information content that reach this mass; 1 is off.
        top_n_sigma: keep candidates within so many standard deviations of the best logit; 0 or less is off.
        xtc_probability: chance of dropping all likely candidates but the least likely of them; 0 is off.
        xtc_threshold: what counts as likely to XTC; above 0.5 is off.
        dynatemp_range: temperature moves by up to this with the entropy; 0 is off.
        dynatemp_exponent: how the entropy is turned into a temperature.
        dry_multiplier: strength of the penalty on tokens that would extend a repetition; 0 is off.
        dry_base: how the penalty grows with the repetition's length.
        dry_allowed_length: repetitions up to this length, in tokens, go free.
        dry_penalty_last_n: how far DRY looks back, in tokens; 0 is off, -1 the whole context.
        dry_sequence_breakers: strings across which no repetition reaches.
        mirostat: 1 or 2 choose that version, which replaces every other cut; 0 is off.
        mirostat_tau: the surprise to aim at, in bits.
        mirostat_eta: how fast Mirostat learns.
        samplers: which samplers run and in which order, by llama.cpp's names; None means llama.cpp's own order.
        min_tokens: tokens to generate before one may end the choice, or complete a stop string that does (as in vLLM).
        logit_bias: (token id, bias) pairs added to the logits.
        ignore_eos: never end before `max_tokens`.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    samplers: tuple[str, ...] | None = None
    min_tokens: int = 0


MOST_GRAMMAR_CHARACTERS = 2**18
"""Of a source. 128 functions of 20 properties take up to 240,000 in the languages of some families."""


class GrammarKind(StrEnum):
    """The languages in which a constraint can be written."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"
    GBNF = "gbnf"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the text of every choice must match, from its first character to its end.

    Attributes:
        kind: the language of `source`.
        source: a JSON schema as JSON text, a regular expression, or a grammar.
    """

    kind: GrammarKind
    source: str


@dataclass(frozen=True, slots=True)
class Infill:
    """A prompt that asks for the text between two others. Only some models know how."""

    prefix: str
    suffix: str


Prompt: TypeAlias = str | tuple[int, ...] | Infill
"""A text, which the engine tokenises; token ids; or a gap to fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One or several prompts, each answered `n` times.

    Choice `p * n + i` is answer `i` of prompt `p`. Every choice is a sequence of its own.

    Attributes:
        id: follows the request through the logs of both processes; need not be unique.
        prompts: what to continue.
        n: answers per prompt.
        max_tokens: tokens generated per choice at most; None means up to the slot's end.
        stop: strings that end a choice; they are not part of its text.
        stop_tokens: token ids that end a choice; they are not part of its text.
        sampling: how tokens are drawn.
        stream: whether text is wanted as it comes. If not, each choice arrives whole in its `Finished`.
        cache_prompt: whether resident tokens of earlier prompts may be reused, and this prompt kept for later ones.
        cache_partition: who else may share them: requests of the same partition.
        grammar: what the text must match; None leaves it free.
        speculative: whether several tokens may be computed at once where the text seems to repeat what was said, which
            changes its time alone, and its rounding: True always, False never, None where it is faster, as measured,
            and no seed asks for what can be repeated exactly.
        prediction: a text that the answers may repeat, wholly or in parts.
        echo: whether each choice's text begins with its prompt, which no stop string ends. Its details, if they are
            asked for, begin with the prompt's tokens, of which the first has no probability.
        logprobs: how many of the likeliest alternatives are told of each token, beside its own log-probability under
            the model's unchanged distribution; None tells nothing.
        token_ids: whether the choice's tokens are told.
        show_special: whether control tokens appear in the text by their names, for parsers that need them.
    """

    id: str
    prompts: tuple[Prompt, ...]
    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    stream: bool = False
    cache_prompt: bool = True
    cache_partition: str = ""
    grammar: Grammar | None = None
    speculative: bool | None = None
    prediction: str = ""
    echo: bool = False
    logprobs: int | None = None
    token_ids: bool = False
    show_special: bool = False

    @property
    def parts(self) -> int:
        """How many ends there will be, one a choice."""
        return len(self.prompts) * self.n


EmbeddingInput: TypeAlias = str | tuple[int, ...]
"""A text, which the engine tokenises, or token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRequest:
    """Texts, each of which is turned into one vector.

    Attributes:
        id: follows the request through the logs of both processes; need not be unique.
        inputs: what to embed.
    """

    id: str
    inputs: tuple[EmbeddingInput, ...]

    @property
    def parts(self) -> int:
        """How many ends there will be, one an input."""
        return len(self.inputs)


Request: TypeAlias = GenerationRequest | EmbeddingRequest
"""What the engine serves in turn, keeps cells for, and releases when it is cancelled."""
