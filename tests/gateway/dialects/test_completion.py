"""Every field of a completion request, and every way it can be wrong."""

import pytest
from pydantic import ValidationError

from engine import GenerationRequest, Sampling
from gateway.dialects.completion import CompletionBody


def read(**fields: object) -> GenerationRequest:
    return CompletionBody.model_validate({"prompt": "x", **fields}).request("req_1")


def refused(**fields: object) -> tuple[str, str]:
    """The field at fault and the reason."""
    with pytest.raises(ValidationError) as caught:
        CompletionBody.model_validate({"prompt": "x", **fields})
    fault = caught.value.errors()[0]
    return str(fault["loc"][0]), fault["msg"].removeprefix("Value error, ").removeprefix("Input ")


def test_openais_defaults() -> None:
    assert read() == GenerationRequest(id="req_1", prompts=("x",), n=1, max_tokens=16)
    assert read().sampling == Sampling()


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("Once", ("Once",)),
        (["Once", "Twice"], ("Once", "Twice")),
        ([1, 2, 0], ((1, 2, 0),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
        (["Once", [2, 3]], ("Once", (2, 3))),
        ("\0", ("\0",)),
    ],
)
def test_prompts(prompt: object, prompts: tuple[object, ...]) -> None:
    assert read(prompt=prompt).prompts == prompts


FORMS = "should be a string, an array of strings, an array of token ids or an array of such arrays"


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("", "should not be empty"),
        ([], "should not be empty"),
        ([""], "should not be empty"),
        ([[]], "should not be empty"),
        (["Once", ""], "should not be empty"),
        (5, FORMS),
        ({}, FORMS),
        (True, FORMS),
        ([True], FORMS),
        ([1.0], FORMS),
        ([1, "a"], FORMS),
        ([[1, "a"]], FORMS),
        ([[[1]]], FORMS),
        ([-1], "has the token id -1, which no model has"),
        ([2**31], "has the token id 2147483648, which no model has"),
        ([2**31, 0, -1], "has the token id -1, which no model has"),
        ([1] * (2**20 + 1), "should have at most 1048576 token ids in a prompt"),
        ([[1] * (2**20 + 1)], "should have at most 1048576 token ids in a prompt"),
        (["x"] * 129, "should have at most 128 prompts"),
        ([[]] * 129, "should have at most 128 prompts"),
    ],
)
def test_prompts_that_are_none(prompt: object, reason: str) -> None:
    assert refused(prompt=prompt) == ("prompt", reason)


def test_a_prompt_is_required() -> None:
    assert refused(prompt=None) == ("prompt", "Field required")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0),
        ("temperature", 2.0),
        ("top_p", 0.0),
        ("top_p", 1),
        ("top_k", 40),
        ("min_p", 0.05),
        ("frequency_penalty", -2),
        ("presence_penalty", 2),
        ("repeat_penalty", 0.01),
        ("repeat_penalty", 1.1),
        ("repeat_last_n", -1),
        ("ignore_eos", True),
    ],
)
def test_sampling_fields(field: str, value: object) -> None:
    assert getattr(read(**{field: value}).sampling, field) == value


@pytest.mark.parametrize(
    ("seed", "drawn_from"), [(0, 0), (7, 7), (2**32 + 7, 7), (-2, 2**32 - 2), (2**63, 0), (-1, None), (None, None)]
)
def test_seeds(seed: int | None, drawn_from: int | None) -> None:
    assert read(seed=seed).sampling.seed == drawn_from


def test_a_top_k_of_minus_one_keeps_all() -> None:
    assert read(top_k=-1).sampling.top_k == 0


@pytest.mark.parametrize(
    ("stop", "stops"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (["a"] * 16, ("a",) * 16)]
)
def test_stop_strings(stop: object, stops: tuple[str, ...]) -> None:
    assert read(stop=stop).stop == stops


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("", "should have strings of 1 to 1024 characters"),
        (["a", ""], "should have strings of 1 to 1024 characters"),
        ("a" * 1025, "should have strings of 1 to 1024 characters"),
        (["a"] * 17, "should have at most 16 strings"),
        ([5] * 17, "should have at most 16 strings"),
        (5, "should be a string or an array of strings"),
        ([5], "should be a string or an array of strings"),
    ],
)
def test_stop_strings_that_are_none(stop: object, reason: str) -> None:
    assert refused(stop=stop) == ("stop", reason)


def test_logit_biases() -> None:
    assert read(logit_bias={"5": -100, "0": 1.5}).sampling.logit_bias == ((5, -100.0), (0, 1.5))
    assert len(read(logit_bias={str(token): 1 for token in range(1024)}).sampling.logit_bias) == 1024


@pytest.mark.parametrize(
    ("biases", "reason"),
    [
        ([1, 2], "should be an object of token ids and biases"),
        ({"a": 1}, "should have token ids as its keys, not 'a'"),
        ({"-1": 1}, "should have token ids as its keys, not '-1'"),
        ({"5": 1, "05": 100}, "should have token ids as its keys, not '05'"),
        ({"+5": 1}, "should have token ids as its keys, not '+5'"),
        ({"5\n": 1}, "should have token ids as its keys, not '5\\n'"),
        ({str(token): "1" for token in range(1025)}, "should have at most 1024 biases"),
        ({"²": 1}, "should have token ids as its keys, not '²'"),
        ({"2147483648": 1}, "should have token ids as its keys, not '2147483648'"),
        ({"9" * 5000: 1}, f"should have token ids as its keys, not {'9' * 40!r}"),
        ({"1": 100.5}, "should have numbers from -100 to 100 as its values"),
        ({"1": True}, "should have numbers from -100 to 100 as its values"),
        ({"1": "1"}, "should have numbers from -100 to 100 as its values"),
        ({"1": None}, "should have numbers from -100 to 100 as its values"),
    ],
)
def test_logit_biases_that_are_none(biases: object, reason: str) -> None:
    assert refused(logit_bias=biases) == ("logit_bias", reason)


WRONG: dict[str, tuple[object, ...]] = {
    "temperature": (-0.1, 2.1, "1", True, [], {}, float("nan"), float("inf")),
    "top_p": (-0.1, 1.1, "1", True),
    "min_p": (-0.1, 1.1, "0"),
    "frequency_penalty": (-2.1, 2.1, "0", False),
    "presence_penalty": (-2.1, 2.1, "0", False),
    "repeat_penalty": (0, -1, 5e-324, 1e-38, 0.009, 10.5, "1"),
    "repeat_last_n": (-2, 1.5, 2**31),
    "top_k": (-2, 0.5, 2**31, "40", True),
    "seed": (-(2**63) - 1, 2**64, 1.5, "7", True),
    "max_tokens": (-1, 2**31, 1.0, "16", True, [16]),
    "n": (0, -1, 129, 1.0, "1", True),
    "best_of": (1.0, "1", True),
    "logprobs": ("0", True),
    "stream": (1, "true"),
    "ignore_eos": (1, "true"),
    "cache_prompt": (1, "true"),
    "echo": (0, "false"),
    "model": (1, [], False),
    "user": (1, [], False),
    "suffix": (1, [], False),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_numbers_and_types_that_are_wrong(field: str, value: object) -> None:
    assert refused(**{field: value})[0] == field


@pytest.mark.parametrize("field", [name for name in CompletionBody.model_fields if name != "prompt"])
def test_null_means_not_given(field: str) -> None:
    assert read(**{field: None}) == read()


def test_choices_are_bounded() -> None:
    assert read(n=128).n == 128
    assert len(read(prompt=["x"] * 128).prompts) == 128
    reason = ("n", "times the number of prompts should be at most 128")
    assert refused(prompt=["x"] * 43, n=3) == reason


def test_usage_is_asked_of_streams_only() -> None:
    options = {"include_usage": True, "include_obfuscation": False}
    assert CompletionBody.model_validate({"prompt": "x", "stream": True, "stream_options": options}).include_usage
    assert not CompletionBody.model_validate({"prompt": "x", "stream": True, "stream_options": {}}).include_usage
    assert refused(stream_options=options) == ("stream_options", "is allowed only where stream is true")
    assert refused(stream=True, stream_options=5)[0] == "stream_options"
    assert refused(stream=True, stream_options={"include_usage": 1})[0] == "stream_options"


def test_what_is_not_supported_is_refused_where_it_asks_for_something() -> None:
    assert read(best_of=1, echo=False, logprobs=None, suffix="") == read()
    assert read(best_of=3, n=3) == read(n=3)
    for field, value in (("echo", True), ("logprobs", 0), ("logprobs", 5), ("suffix", "end")):
        assert refused(**{field: value}) == (field, "is not supported")
    assert refused(best_of=3, n=2) == ("best_of", "other than n is not supported")
    assert refused(best_of=3) == ("best_of", "other than n is not supported")


def test_unknown_fields_are_accepted_and_kept_apart() -> None:
    body = CompletionBody.model_validate({"prompt": "x", "logit_bios": {}, "mirostat": 2})
    assert set(body.model_extra or ()) == {"logit_bios", "mirostat"}
    assert body.request("req_1") == read()
