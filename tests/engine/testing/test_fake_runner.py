"""The fake runner: refuses invalid plans like llama.cpp, and computes by rules that a test can predict."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save
from engine.core.step import SCORED_AT_ONCE, StepPlan
from engine.errors import RequestError
from engine.events import Finished, FinishReason
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
    key = driver.add(grammar=Grammar(GrammarKind.JSON_SCHEMA, '{"a":1}'), sampling=sampling, max_tokens=50)
    driver.drain()
    finished = driver.last(key)
    assert isinstance(finished, Finished)
    assert (finished.text, finished.reason) == ('{"a":1}', FinishReason.STOP)


def test_an_empty_grammar_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        Driver().add(grammar=Grammar(GrammarKind.LARK, ""))
    assert refused.value.param == "grammar"


@pytest.mark.parametrize(("special", "text"), [(True, "<middle>"), (False, "")])
def test_control_tokens_are_shown_on_request(special: bool, text: str) -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, script=lambda tokens: END if tokens[-1] == MIDDLE else MIDDLE))
    key = driver.add(show_special=special)
    driver.drain()
    assert driver.text(key) == text


def test_an_end_waits_for_min_tokens() -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, script=lambda _tokens: END))
    key = driver.add("hello", max_tokens=50, sampling=Sampling(min_tokens=4))
    driver.drain()
    finished = driver.last(key)
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.tokens) == (FinishReason.STOP, 5)


def test_only_existing_cells_are_saved_and_restored() -> None:
    runner = FakeRunner(FakeModel(can_trim=False))
    runner.cache.cells[1] = [1, 2, 3]
    assert runner.cache.save(Save(1, 1))
    for wrong in (Save(1, 1), Save(2, 0)):
        with pytest.raises(RuntimeError, match="to save"):
            runner.cache.save(wrong)
    for missing in (Restore(2, 0, 3), Restore(1, 0, 4), Restore(1, 0, 2)):
        with pytest.raises(RuntimeError, match="to restore"):
            runner.cache.restore(missing)
    runner.cache.restore(Restore(1, 0, 3))
    assert runner.cache.cells[0] == [1, 2, 3]
    runner.cache.room = 5
    assert not runner.cache.save(Save(3, 0))


def test_a_slot_is_rolled_back_only_to_where_it_was() -> None:
    runner = FakeRunner(FakeModel(can_trim=False))
    runner.cache.cells = {0: [1, 2, 3], 1: [1, 2, 3, 4], 2: [1, 2, 9]}
    assert runner.cache.save(Save(1, 0, partial=True))
    for wrong in (Rewind(2, 1, 3), Rewind(1, 1, 2), Rewind(1, 2, 3), Rewind(1, 3, 3)):
        with pytest.raises(RuntimeError, match="never was"):
            runner.cache.rewind(wrong)
    runner.cache.rewind(Rewind(1, 1, 3))
    assert runner.cache.cells[1] == [1, 2, 3]
    runner.cache.forget(Forget(1))
    with pytest.raises(RuntimeError, match="never was"):
        runner.cache.rewind(Rewind(1, 1, 3))


@pytest.mark.parametrize("model", [FakeModel(), FakeModel(can_trim=False)], ids=["plain", "recurrent"])
def test_a_model_without_partial_states_has_no_checkpoints_of_cells(model: FakeModel) -> None:
    runner = FakeRunner(model, rewinds=False)
    runner.cache.cells[0] = [1, 2, 3]
    with pytest.raises(RuntimeError, match="no partial states"):
        runner.cache.save(Save(1, 0, partial=True))


def test_copies_of_windows_cannot_be_cut_but_what_is_computed_behind_them() -> None:
    runner = FakeRunner(FakeModel(windowed=True))
    runner.cache.cells[0] = [1, 2, 3]
    with pytest.raises(RuntimeError, match="to copy"):
        runner.cache.copy(Copy(0, 1, 2))
    runner.cache.copy(Copy(0, 1, 3))
    runner.cache.cells[1] += [4, 5]
    runner.cache.remove(Removal(1, 4))
    with pytest.raises(RuntimeError, match="cannot drop part"):
        runner.cache.remove(Removal(1, 2))
    runner.cache.remove(Removal(0, 2))
    assert (runner.cache.cells[0], runner.cache.cells[1]) == ([1, 2], [1, 2, 3, 4])


@pytest.mark.parametrize("windowed", [False, True])
def test_a_copy_takes_cells_of_its_own_where_there_are_windows(windowed: bool) -> None:
    runner = FakeRunner(FakeModel(pool=5, windowed=windowed, can_trim=not windowed))
    runner.cache.cells[0] = [1, 2, 3]
    runner.cache.remove(Removal(0, 3))
    with pytest.raises(RuntimeError, match="6 cells in a pool of 5") if windowed else nullcontext():
        runner.cache.copy(Copy(0, 1, 3))


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
