"""Sampling fields: each reaches the engine, under the engine's name and type."""

from typing import get_type_hints

from msgspec import structs

from engine import GenerationRequest, Sampling
from gateway.apis.fields.sampling import SamplingFields

CONVERTED = {"top_k", "seed", "repeat_penalty", "dry_sequence_breakers", "samplers"}
CHANGED = {
    "temperature": 0.5,
    "top_k": 40,
    "top_p": 0.25,
    "min_p": 0.125,
    "seed": 7,
    "frequency_penalty": 1.5,
    "presence_penalty": -1.5,
    "repeat_penalty": 1.25,
    "repeat_last_n": 32,
    "logit_bias": {"5": -2.5},
    "ignore_eos": True,
    "typical_p": 0.75,
    "top_n_sigma": 2.5,
    "xtc_probability": 0.375,
    "xtc_threshold": 0.0625,
    "dynatemp_range": 0.875,
    "dynatemp_exponent": 3.0,
    "dry_multiplier": 0.625,
    "dry_base": 1.125,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 128,
    "dry_sequence_breakers": ["a", "b"],
    "mirostat": 2,
    "mirostat_tau": 4.5,
    "mirostat_eta": 0.1875,
    "samplers": ["top_k", "min_p"],
    "min_tokens": 11,
}


def test_every_field_of_the_engine_can_be_set() -> None:
    assert CHANGED.keys() == set(Sampling.__struct_fields__)
    converted = {"logit_bias": ((5, -2.5),), "dry_sequence_breakers": ("a", "b"), "samplers": ("top_k", "min_p")}
    assert structs.asdict(SamplingFields.model_validate(CHANGED).sampling()) == CHANGED | converted


def test_fields_that_are_copied_have_the_type_that_the_engine_expects() -> None:
    expected = {name: hint for name, hint in get_type_hints(Sampling).items() if name not in CONVERTED}
    assert {name: SamplingFields.model_fields[name].annotation for name in expected} == expected


def test_without_fields_the_engines_defaults_hold() -> None:
    body = SamplingFields.model_validate({})
    assert body.sampling() == Sampling()
    assert body.generation(("a",)) == GenerationRequest(id="", prompts=("a",))


def test_options_of_the_request_reach_the_generation() -> None:
    options = {"stop": ["x"], "stop_token_ids": [3], "cache_prompt": False, "cache_salt": "s", "speculative": True}
    options |= {"n_keep": -1, "n_discard": 7}
    assert SamplingFields.model_validate(options | {"seed": 5}).generation(((1, 2),)) == GenerationRequest(
        id="",
        prompts=((1, 2),),
        stop=("x",),
        stop_tokens=(3,),
        sampling=Sampling(seed=5),
        given=frozenset({"stop", "seed", "keep"}),
        cache_prompt=False,
        cache_partition="s",
        speculative=True,
        keep=-1,
        discard=7,
    )
