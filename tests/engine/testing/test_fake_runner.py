"""The fake runner: refuses invalid plans like llama.cpp, and computes by rules that a test can predict."""

from dataclasses import replace

import pytest

from engine.core.step import SCORED_AT_ONCE, StepPlan
from engine.errors import RequestError
from engine.events import FinishReason
from engine.request import Grammar, GrammarKind, Sampling
from engine.testing.fake_model import END, MIDDLE, PREFIX, SUFFIX, FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver


def test_names_of_control_tokens_are_recognised_where_they_are_special() -> None:
    model = FakeModel()
    assert model.tokenize("a<end>b") == [97, END, 98]
    assert model.tokenize("<end>", special=False) == list(b"<end>")
    assert [model.piece(END, special=special) for special in (True, False)] == [b"<end>", b""]


def test_infill_encloses_both_texts_in_control_tokens() -> None:
    assert FakeModel().infill("a", "<end>") == [PREFIX, 97, SUFFIX, *b"<end>", MIDDLE]
    with pytest.raises(RequestError) as refused:
        FakeModel(infills=False).infill("a", "b")
    assert refused.value.param == "suffix"


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(min_tokens=9, ignore_eos=True)])
def test_a_grammar_is_the_text_that_matches_it(sampling: Sampling) -> None:
    driver = Driver()
    key = driver.serve(grammar=Grammar(GrammarKind.JSON_SCHEMA, '{"a":1}'), sampling=sampling, max_tokens=50)
    finished = driver.finished(key)
    assert (finished.text, finished.reason) == ('{"a":1}', FinishReason.STOP)


def test_an_empty_grammar_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        Driver().add(grammar=Grammar(GrammarKind.LARK, ""))
    assert refused.value.param == "grammar"


@pytest.mark.parametrize(("special", "text"), [(True, "<middle>"), (False, "")])
def test_control_tokens_are_shown_on_request(special: bool, text: str) -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, script=lambda tokens: END if tokens[-1] == MIDDLE else MIDDLE))
    key = driver.serve(show_special=special)
    assert driver.text(key) == text


def test_an_end_waits_for_min_tokens() -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, script=lambda _tokens: END))
    key = driver.serve("hello", max_tokens=50, sampling=Sampling(min_tokens=4))
    finished = driver.finished(key)
    assert (finished.reason, finished.tokens) == (FinishReason.STOP, 5)


@pytest.mark.parametrize(
    ("asked", "wrong", "why"),
    [
        ({"echo": True, "logprobs": 0}, {"count": SCORED_AT_ONCE + 1}, "more rows"),
        ({"echo": True, "logprobs": 0}, {"sample": True}, "not its sequence's last"),
        ({}, {"score": True, "count": 9}, "no rows to score"),
    ],
)
def test_an_invalid_plan_is_refused(asked: dict[str, object], wrong: dict[str, int], why: str) -> None:
    driver = Driver(FakeModel(context=1024))
    driver.add("x" * 500, **asked)
    plan = driver.plan().plan
    assert plan is not None
    with pytest.raises(RuntimeError, match=why):
        driver.run.run(StepPlan((replace(plan.chunks[0], **wrong),), decode=False))  # type: ignore[arg-type]
