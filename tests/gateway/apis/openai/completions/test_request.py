"""Every field of a completion request, and every way in which it can be invalid."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine import GenerationRequest, Grammar, GrammarKind, Infill, Sampling
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.reports import Report


def read(**fields: object) -> GenerationRequest:
    return CompletionBody.model_validate({"prompt": "x", **fields}).request()


def refused(**fields: object) -> tuple[str, str]:
    """Return the field at fault and the reason."""
    with pytest.raises(ValidationError) as caught:
        CompletionBody.model_validate({"prompt": "x", **fields})
    fault = caught.value.errors()[0]
    return str(fault["loc"][0]), fault["msg"].removeprefix("Value error, ").removeprefix("Input ")


def test_an_empty_request_has_openais_defaults() -> None:
    assert read() == GenerationRequest(id="", prompts=("x",), n=1, max_tokens=16)
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
def test_prompts_have_all_of_openais_forms(prompt: object, prompts: tuple[object, ...]) -> None:
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
        ([1.5], FORMS),
        ([1, "a"], FORMS),
        ([[1, "a"]], FORMS),
        ([[[1]]], FORMS),
        ([-1], "has the token id -1, which no model has"),
        ([2**31], "has the token id 2147483648, which no model has"),
        ([2**31, 0, -1], "has the token id -1, which no model has"),
        ([1] * (2**18 + 1), "should have at most 262144 token ids in total"),
        ([[1] * (2**18 + 1)], "should have at most 262144 token ids in total"),
        ([[1] * 2**17, [1] * 2**17, [1]], "should have at most 262144 token ids in total"),
        ([[]] * 10**6, "should have at most 128 items"),
        (["x"] * 129, "should have at most 128 items"),
        ([[]] * 129, "should have at most 128 items"),
    ],
)
def test_invalid_prompts_are_refused(prompt: object, reason: str) -> None:
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
        ("frequency_penalty", -2),
        ("presence_penalty", 2),
        ("repeat_penalty", 0.01),
        ("repeat_last_n", -1),
        ("dry_base", 1),
        ("dry_allowed_length", 0),
        ("mirostat", 2),
    ],
)
def test_the_bounds_of_sampling_fields_are_allowed(field: str, value: object) -> None:
    assert getattr(read(**{field: value}).sampling, field) == value


@pytest.mark.parametrize(
    ("seed", "drawn_from"), [(0, 0), (7, 7), (2**32 + 7, 7), (-2, 2**32 - 2), (2**63, 0), (-1, None), (None, None)]
)
def test_seeds_are_reduced_to_32_bits(seed: int | None, drawn_from: int | None) -> None:
    assert read(seed=seed).sampling.seed == drawn_from


def test_a_top_k_of_minus_one_keeps_all() -> None:
    assert read(top_k=-1).sampling.top_k == 0


def test_samplers_and_sequence_breakers_are_lists() -> None:
    assert read(samplers=["top_k", "temperature"]).sampling.samplers == ("top_k", "temperature")
    assert read(samplers=[]).sampling.samplers == ()
    assert refused(samplers=["top_k", "top_k"]) == ("samplers", "should have each name once")
    assert refused(samplers=["top_a"])[0] == "samplers"
    assert read(dry_sequence_breakers=["\n", "ж"]).sampling.dry_sequence_breakers == ("\n", "ж")
    assert read(dry_sequence_breakers=[]).sampling.dry_sequence_breakers == ()


@pytest.mark.parametrize("breakers", [[""], ["a\0"], ["ж" * 21], ["a"] * 17, [1], "a"])
def test_invalid_sequence_breakers_are_refused(breakers: object) -> None:
    assert refused(dry_sequence_breakers=breakers)[0] == "dry_sequence_breakers"


def test_repetition_penalty_and_repeat_penalty_are_one_field() -> None:
    assert read(repetition_penalty=1.1).sampling.repeat_penalty == 1.1
    assert read(repetition_penalty=1.1, repeat_penalty=1.1).sampling.repeat_penalty == 1.1
    reason = "means the same as repeat_penalty, which has another value"
    assert refused(repetition_penalty=1.1, repeat_penalty=1.2) == ("repetition_penalty", reason)


@pytest.mark.parametrize(
    ("fields", "window"),
    [
        ({}, -1),
        ({"repeat_last_n": 64}, 64),
        ({"repeat_penalty": 1.1}, 64),
        ({"repetition_penalty": None, "repeat_penalty": 1.1}, 64),
    ],
)
def test_repetition_penalty_alone_counts_the_whole_text_as_in_vllm(fields: dict[str, Any], window: int) -> None:
    assert read(**{"repetition_penalty": 1.1, **fields}).sampling.repeat_last_n == window


@pytest.mark.parametrize(
    ("stop", "stops"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (["a"] * 16, ("a",) * 16)]
)
def test_stop_is_a_string_or_a_list(stop: object, stops: tuple[str, ...]) -> None:
    assert read(stop=stop).stop == stops


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("", "should have strings of 1 to 1024 characters"),
        (["a", ""], "should have strings of 1 to 1024 characters"),
        ("a" * 1025, "should have strings of 1 to 1024 characters"),
        (["a"] * 1025, "should have at most 1024 strings"),
        ([5] * 1025, "should have at most 1024 strings"),
        (5, "should be a string or an array of strings"),
        ([5], "should be a string or an array of strings"),
    ],
)
def test_invalid_stop_strings_are_refused(stop: object, reason: str) -> None:
    assert refused(stop=stop) == ("stop", reason)


def test_logit_biases_are_read_by_token_id() -> None:
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
def test_invalid_logit_biases_are_refused(biases: object, reason: str) -> None:
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
    "typical_p": (-0.1, 1.1, "1"),
    "top_n_sigma": (-1.1, 101, float("nan")),
    "repetition_penalty": (0, 10.5, True),
    "dry_multiplier": (-0.1, 101),
    "dry_base": (0.9, 101),
    "dry_allowed_length": (-1, 2**31, 1.5),
    "dry_penalty_last_n": (-2, 2**31),
    "xtc_probability": (-0.1, 1.1),
    "xtc_threshold": (-0.1, 1.1),
    "dynatemp_range": (-0.1, 2.1),
    "dynatemp_exponent": (-0.1, 101),
    "mirostat": (-1, 3, 1.5, True, "2"),
    "mirostat_tau": (-0.1, 20.1),
    "mirostat_eta": (-0.1, 1.1),
    "samplers": ("top_k", [1], [None]),
    "min_tokens": (-1, 2**31, 1.5),
    "stop_token_ids": (5, [-1], [2**31], ["5"], [True], [1.5]),
    "return_token_ids": (1, "true"),
    "timings": (1, "true"),
    "timings_per_token": (1,),
    "seed": (-(2**63) - 1, 2**64, 1.5, "7", True),
    "max_tokens": (-1, 2**31, 1.5, "16", True, [16]),
    "n": (0, -1, 129, 1.5, "1", True),
    "best_of": (1.5, "1", True),
    "logprobs": ("0", True),
    "stream": (1, "true"),
    "ignore_eos": (1, "true"),
    "cache_prompt": (1, "true"),
    "cache_salt": ("", 1, True, ["a"], "a" * 257),
    "echo": (0, "false"),
    "model": (1, [], False),
    "user": (1, [], False),
    "suffix": (1, [], False),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_invalid_numbers_and_types_are_refused(field: str, value: object) -> None:
    assert refused(**{field: value})[0] == field


@pytest.mark.parametrize("field", [name for name in CompletionBody.model_fields if name != "prompt"])
def test_null_means_not_given(field: str) -> None:
    assert read(**{field: None}) == read()


def test_the_number_of_choices_is_bounded() -> None:
    assert read(n=128).n == 128
    assert len(read(prompt=["x"] * 128).prompts) == 128
    reason = ("n", "times the number of prompts should be at most 128")
    assert refused(prompt=["x"] * 43, n=3) == reason


def test_include_usage_is_for_streams_only() -> None:
    options = {"include_usage": True, "include_obfuscation": False, "unknown": 1}
    with_usage = CompletionBody.model_validate({"prompt": "x", "stream": True, "stream_options": options})
    assert with_usage.report() == Report(include_usage=True)
    assert CompletionBody.model_validate({"prompt": "x", "stream": True, "stream_options": {}}).report() == Report()
    assert refused(stream_options=options) == ("stream_options", "is allowed only where stream is true")
    assert refused(stream=True, stream_options=5)[0] == "stream_options"
    assert refused(stream=True, stream_options={"include_usage": 1})[0] == "stream_options"


def test_best_of_generates_more_choices_than_it_returns() -> None:
    assert read(best_of=3, n=3) == read(n=3)
    best = read(best_of=3, n=2)
    assert (best.n, best.logprobs) == (3, 0)
    assert read(best_of=3, logprobs=2).logprobs == 2
    assert read(best_of=2, n=2, stream=True).n == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"best_of": 1, "n": 2}, "should be at least n"),
        ({"best_of": 2, "stream": True}, "should be n where stream is true: the best are known only at the end"),
        ({"best_of": 65, "prompt": ["x", "y"]}, "times the number of prompts should be at most 128"),
        ({"best_of": 129}, "should be less than or equal to 128"),
        ({"best_of": 0}, "should be greater than or equal to 1"),
    ],
)
def test_an_invalid_best_of_is_refused(fields: dict[str, object], reason: str) -> None:
    assert refused(**fields) == ("best_of", reason)


def test_suffix_becomes_an_infill_prompt() -> None:
    assert read(suffix="end", prompt=["a", "b"]).prompts == (Infill("a", "end"), Infill("b", "end"))
    assert read(suffix="", prompt=[1], echo=True) == read(prompt=[1], echo=True)
    assert refused(suffix="end", prompt=[1, 2]) == ("suffix", "needs prompts that are texts")
    assert refused(suffix="end", prompt=["a", [1]]) == ("suffix", "needs prompts that are texts")
    assert refused(suffix="end", echo=True) == ("suffix", "cannot be combined with echo")


def test_logprobs_token_ids_and_echo_are_off_by_default() -> None:
    assert (read().logprobs, read().token_ids, read().echo) == (None, False, False)
    told = read(logprobs=20, return_token_ids=True, echo=True)
    assert (told.logprobs, told.token_ids, told.echo) == (20, True, True)
    assert refused(logprobs=21) == ("logprobs", "should be less than or equal to 20")
    assert refused(logprobs=-1) == ("logprobs", "should be greater than or equal to 0")


def test_a_stream_reports_only_what_it_asks_for() -> None:
    asked = {(one.progress, one.token_ids) for one in (read(), read(stream=True), read(return_progress=True))}
    assert asked == {(False, False)}
    assert read(stream=True, return_progress=True).progress
    timed = read(stream=True, timings_per_token=True)
    assert (timed.progress, timed.token_ids) == (True, True)
    counted = read(stream=True, stream_options={"continuous_usage_stats": True})
    assert (counted.progress, counted.token_ids) == (False, True)


def test_stop_token_ids_are_read_and_bounded() -> None:
    assert read(stop_token_ids=[0, 7]).stop_tokens == (0, 7)
    assert refused(stop_token_ids=[1] * 129)[0] == "stop_token_ids"


def test_a_constraint_becomes_a_grammar() -> None:
    assert read(guided_regex="a+").grammar == Grammar(GrammarKind.REGEX, "a+")


def test_unknown_fields_are_accepted_and_kept_apart() -> None:
    body = CompletionBody.model_validate({"prompt": "x", "logit_bios": {}, "mirrorstat": 2})
    assert set(body.model_extra or ()) == {"logit_bios", "mirrorstat"}
    assert body.request() == read()
