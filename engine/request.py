"""What a caller asks of the engine."""

from dataclasses import dataclass, field


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One or several prompts, each answered `n` times.

    Choice `p * n + i` is answer `i` of prompt `p`. Every choice is a sequence of its own.

    Attributes:
        id: follows the request through the logs of both processes; need not be unique.
        prompts: each a text, which the engine tokenises, or token ids.
        n: answers per prompt.
        max_tokens: tokens generated per choice at most; None means up to the slot's end.
        stop: strings that end a choice; they are not part of its text.
        sampling: how tokens are drawn.
        stream: whether text is wanted as it comes. If not, each choice arrives whole in its `Finished`.
        cache_prompt: whether resident tokens of earlier prompts may be reused, and this prompt kept for later ones.
    """

    id: str
    prompts: tuple[str | tuple[int, ...], ...]
    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    stream: bool = False
    cache_prompt: bool = True
