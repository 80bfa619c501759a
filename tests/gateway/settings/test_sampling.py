"""Settings of sampling: bounds as those of requests, and their values for the engine."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine import GenerationRequest, Sampling
from gateway.apis.fields import sampling as fields
from gateway.apis.fields.sampling import SamplingFields
from gateway.settings import sampling as settings
from gateway.settings.sampling import SamplingSettings, recommended_sampling

BOUNDS = {"minimum", "maximum"}


def bounds_of(model: type[SamplingSettings | SamplingFields], name: str) -> dict[str, Any]:
    field = model.model_json_schema()["properties"][name]
    kinds = [field, *field.get("anyOf", ())]
    return {key: kind[key] for kind in kinds for key in BOUNDS & kind.keys()}


@pytest.mark.parametrize("name", [name for name in SamplingSettings.model_fields if name != "seed"])
def test_a_default_has_the_bounds_of_the_field(name: str) -> None:
    assert name in SamplingFields.model_fields
    assert bounds_of(SamplingSettings, name) == bounds_of(SamplingFields, name)


def test_texts_have_the_bounds_of_the_fields() -> None:
    for name in ("MAX_STOPS", "MAX_STOP_LENGTH", "MAX_BREAKERS", "MAX_BREAKER_BYTES"):
        assert getattr(settings, name) == getattr(fields, name)


def test_each_parameter_of_sampling_has_a_setting() -> None:
    assert set(Sampling.__struct_fields__) - {"min_tokens"} <= SamplingSettings.model_fields.keys()


def test_nothing_is_a_default_without_a_setting() -> None:
    settings = SamplingSettings.model_validate({})
    assert (settings.chosen_sampling, settings.other_sampling) == ({}, {})


def test_values_are_those_of_the_engine() -> None:
    made = SamplingSettings.model_validate(
        {
            "temperature": "0",
            "top_k": "-1",
            "seed": "-1",
            "samplers": "top_k;temperature,xtc",
            "logit_bias": "5+1.5, 6-1",
            "ignore_eos": "true",
            "stop": "a, b",
            "n_keep": "3",
            "dry_sequence_breakers": "none",
        }
    )
    values = dict(made.chosen_sampling)
    request = GenerationRequest(id="", prompts=(), stop=values.pop("stop"), keep=values.pop("keep"))
    assert (request.stop, request.keep) == (("a, b",), 3)
    assert Sampling(**values) == Sampling(
        temperature=0,
        samplers=("top_k", "temperature", "xtc"),
        logit_bias=((5, 1.5), (6, -1.0)),
        ignore_eos=True,
        dry_sequence_breakers=(),
    )


def test_the_sampling_of_a_file_is_read_as_settings_are() -> None:
    texts = {"temperature": "0.600000", "top_k": "20", "mirostat": "2", "samplers": "top_k;temperature"}
    expected = {"temperature": 0.6, "top_k": 20, "mirostat": 2, "samplers": ("top_k", "temperature")}
    assert recommended_sampling(texts) == expected


def test_impossible_sampling_of_a_file_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    texts = {"temperature": "3", "top_p": "nan", "samplers": "adaptive_p", "min_p": "0.05"}
    assert recommended_sampling(texts) == {"min_p": 0.05}
    (record,) = caplog.records
    assert {"temperature": "3", "top_p": "nan", "samplers": "adaptive_p"}.items() <= vars(record).items()
    assert "min_p" not in vars(record)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("samplers", "top_k;tail", "'tail' is not one of penalties, dry"),
        ("samplers", "xtc;xtc", "should have each name once"),
        ("samplers", "top-k;topk", "should have each name once"),
        ("logit_bias", "x+1", "'x\\+1' is not a token id and a bias"),
        ("temperature", "3", "less than or equal to 2"),
        ("stop", "", "should have texts of 1 to 1024 characters"),
        ("stop", ["a", "b" * 1025], "should have texts of 1 to 1024 characters"),
        ("stop", ["a"] * 1025, "should have at most 1024 texts"),
        ("dry_sequence_breakers", "", "should have texts of 1 to 40 bytes"),
        ("dry_sequence_breakers", "é" * 21, "should have texts of 1 to 40 bytes"),
        ("dry_sequence_breakers", "a\0", "none of them zero"),
        ("dry_sequence_breakers", ["a"] * 17, "should have at most 16 texts"),
    ],
)
def test_wrong_values_are_refused(name: str, value: str | list[str], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        SamplingSettings.model_validate({name: value})
