"""The settings of a generation, by llama-server's names."""

from typing import Any, TypeAlias

from engine import SAMPLER_ORDER, GenerationRequest
from gateway.apis.fields.sampling import MAX_INT

RANDOM_SEED = 2**32 - 1
"""Value of `seed` that draws a seed."""
BAN = -1e9
"""Bias of a token that must not occur. The engine's biases are finite."""

GenerationSettings: TypeAlias = dict[str, Any]
"""The settings, by llama-server's names."""

_COPIED = """temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma xtc_probability xtc_threshold
typical_p repeat_last_n repeat_penalty presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length
dry_penalty_last_n dry_sequence_breakers mirostat mirostat_tau mirostat_eta"""
"""Fields of `Sampling` with the same name and meaning."""


def generation_settings(
    request: GenerationRequest, end_tokens: tuple[int, ...], *, timings_per_token: bool = False
) -> GenerationSettings:
    """Return the settings of a request, with llama-server's constants for what this server does not have.

    Args:
        request: the engine's request.
        end_tokens: the model's end tokens, which `ignore_eos` bans.
        timings_per_token: whether each event of a stream has timings.
    """
    sampling = request.sampling
    limit = request.default_max_tokens if request.max_tokens is None else request.max_tokens
    limit = -1 if limit is None or limit == MAX_INT else limit
    biases = [*sampling.logit_bias, *((token, BAN) for token in end_tokens if sampling.ignore_eos)]
    return {
        "seed": RANDOM_SEED if sampling.seed is None else sampling.seed,
        **{name: getattr(sampling, name) for name in _COPIED.split()},
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "stop": request.stop,
        "max_tokens": limit,
        "n_predict": limit,
        "n_keep": request.keep,
        "n_discard": request.discard,
        "ignore_eos": sampling.ignore_eos,
        "stream": request.stream,
        "logit_bias": [{"bias": None if bias <= BAN else bias, "token": token} for token, bias in biases],
        "n_probs": request.logprobs or 0,
        "min_keep": 0,
        "grammar": "" if request.grammar is None else request.grammar.source,
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "chat_format": "Content-only",
        "reasoning_format": "none",
        "reasoning_in_content": False,
        "generation_prompt": "",
        "samplers": SAMPLER_ORDER if sampling.samplers is None else sampling.samplers,
        "speculative.types": "none",
        "timings_per_token": timings_per_token,
        "post_sampling_probs": request.sampled_logprobs,
        "backend_sampling": False,
        "lora": [{"id": id_, "scale": scale} for id_, scale in request.adapters or ()],
    }
