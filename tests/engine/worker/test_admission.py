"""Admission by length: inputs refused by their beginning, and inputs that must be read to the end."""

import math
from contextlib import nullcontext

import pytest

from engine.core import group
from engine.errors import RequestError
from engine.prompt import Infill, Prompt, PromptText, all_plain
from engine.request import Sampling
from engine.testing.fake_model import END, FakeModel
from engine.worker.admission import admit
from tests.engine.driver import at_once, request

CONTEXT = 64


class CountingModel(FakeModel):
    """A model that counts the bytes it tokenises."""

    seen = 0

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        self.seen += len(text.encode())
        return super().tokenize(text, special=special, begin=begin)


@pytest.fixture
def model() -> CountingModel:
    return CountingModel(context=CONTEXT)


@pytest.mark.parametrize(
    "prompt", ["x" * 10**6, "ж" * 10**6, "x" + "ж" * 600, Infill("", "x" * 10**6), all_plain("x" * 10**6)]
)
def test_a_prompt_that_cannot_fit_is_tokenised_only_at_its_beginning(model: CountingModel, prompt: Prompt) -> None:
    with pytest.raises(RequestError, match=f"at least {CONTEXT + 1} tokens") as raised:
        at_once(admit(1, request(prompt), model))
    assert (raised.value.param, raised.value.code) == ("prompt", "context_length_exceeded")
    assert model.seen <= 16 * CONTEXT


@pytest.mark.parametrize(
    ("own", "default", "limit"),
    [(None, None, CONTEXT - 2), (None, 5, 5), (None, CONTEXT, CONTEXT - 2), (9, 5, 9), (0, 5, 0)],
)
def test_the_default_limit_is_for_requests_without_one_and_always_fits(
    model: CountingModel, own: int | None, default: int | None, limit: int
) -> None:
    group = at_once(admit(1, request("ab", max_tokens=own, default_max_tokens=default), model))
    assert group.waiting[0].left == limit


def test_a_prediction_is_tokenised_only_up_to_the_length_of_the_answer(model: CountingModel) -> None:
    group = at_once(admit(1, request("ab", prediction="cdefgh" + "x" * 10**6, speculative=True), model))
    assert model.seen <= 2 + 16 * CONTEXT
    assert group.waiting[0].drafter is not None
    assert group.waiting[0].drafter.draft([*b"abcde"], 3) == [*b"fgh"]


def test_a_text_that_may_fit_is_tokenised_whole(model: CountingModel) -> None:
    with pytest.raises(RequestError, match=f"requested {2 * CONTEXT + 1} tokens"):
        at_once(admit(1, request("x" * 2 * CONTEXT, max_tokens=1), model))


def test_few_long_tokens_fit_however_long_the_text(model: CountingModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "tokenize", lambda text, **_: [1] * (len(text) // 50))
    group = at_once(admit(1, request("x" * 50 * 40, max_tokens=1), model))
    assert group.waiting[0].prompt == 40


class BlanksModel(FakeModel):
    """A model with tokens of 50 blanks, which counts the most tokens that one text became."""

    most = 0

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        tokens = super().tokenize(text.replace(50 * " ", " "), special=special, begin=begin)
        self.most = max(self.most, len(tokens))
        return tokens


@pytest.mark.parametrize("text", ["x" * 16 * CONTEXT, " " * 25 * CONTEXT + "x" * 10**5])
def test_a_text_is_not_tokenised_at_once_if_it_may_have_far_too_many_tokens(text: str) -> None:
    """llama.cpp may take minutes for it, and cannot be interrupted."""
    model = BlanksModel(context=CONTEXT)
    with pytest.raises(RequestError, match="maximum context length"):
        at_once(admit(1, request(text), model))
    at_once(admit(1, request("a", prediction=text, speculative=True), model))
    assert model.most <= 10 * CONTEXT


@pytest.mark.parametrize(
    ("sampling", "field"),
    [
        (Sampling(temperature=math.inf), "temperature"),
        (Sampling(mirostat_tau=-math.inf), "mirostat_tau"),
        (Sampling(logit_bias=((1, math.nan),)), "logit_bias"),
    ],
)
def test_a_number_that_is_not_finite_is_refused(model: CountingModel, sampling: Sampling, field: str) -> None:
    with pytest.raises(RequestError, match="finite") as raised:
        at_once(admit(1, request("x", sampling=sampling), model))
    assert raised.value.param == field


@pytest.mark.parametrize(("stream", "details"), [(False, 2 * 3 * 6), (True, 3 * 4)])
@pytest.mark.parametrize("refused", [False, True])
def test_an_echo_with_too_many_details_is_refused(
    model: CountingModel, stream: bool, details: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a stream, where a prompt is one event: the longest one must fit in a frame."""
    monkeypatch.setattr(group, "MOST_DETAILS", details - refused)
    admitted = admit(1, request("ab", "abcd", echo=True, logprobs=2, n=2, max_tokens=0, stream=stream), model)
    with pytest.raises(RequestError, match="echoed prompt") if refused else nullcontext() as raised:
        at_once(admitted)
    assert raised is None or (raised.value.param, raised.value.code) == ("logprobs", "too_large")


@pytest.mark.parametrize("most", [None, 3, 2])
def test_a_minimum_of_tokens_above_the_maximum_is_refused(model: CountingModel, most: int | None) -> None:
    admitted = admit(1, request("x", max_tokens=most, sampling=Sampling(min_tokens=3)), model)
    with pytest.raises(RequestError, match="min_tokens 3") if most == 2 else nullcontext() as raised:
        at_once(admitted)
    assert raised is None or (raised.value.param, raised.value.code) == ("min_tokens", "invalid_value")


def test_a_prompt_with_plain_parts_is_tokenised_in_parts(model: CountingModel) -> None:
    group = at_once(admit(1, request().replaced(prompts=(PromptText("<end>a<end>", ((5, 11),)),)), model))
    assert group.waiting[0].tokens == [END, *b"a<end>"]
