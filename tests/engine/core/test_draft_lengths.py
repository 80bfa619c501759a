"""The number of draft tokens of a step: by the room of its rows, their acceptance rates, and measured times."""

from dataclasses import replace
from typing import Any

import pytest

from engine.core.drafts.drafter import NgramDrafter
from engine.core.drafts.speculation import LENGTHS, Speculator
from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE
from engine.testing.fake_model import FakeModel
from tests.engine.driver import request


class AlwaysDrafting(NgramDrafter):
    """A drafter with a guess before each token."""

    def draft(self, tokens: list[int], most: int) -> list[int]:
        del tokens
        return [0] * most


def drafting(count: int, *, limit: int = 100, speculative: bool | None = None) -> list[Sequence]:
    """Return rows in neighbouring slots whose drafts are mostly right."""
    rows = [Sequence(request("p", speculative=speculative), 0, list(b"abcabcabcabc"), limit) for _ in range(count)]
    for at, row in enumerate(rows):
        assert row.drafter
        row.seq_id, row.computed, row.drafter.acceptance_rate = at, len(row.tokens) - 1, 0.9
    return rows


def measured(times: dict[int, float], **traits: Any) -> Speculator:
    """Return a speculator that knows the seconds of steps by their rows."""
    speculator = Speculator(replace(FakeModel().traits, **traits))
    for rows, seconds in times.items():
        speculator.observe(rows, seconds, drawn=1, accepted=0)
    return speculator


def always(rate: float) -> Sequence:
    """Return a row with a guess before each token, of which this share is right."""
    (row,) = drafting(1)
    row.drafter = AlwaysDrafting([])
    row.drafter.acceptance_rate = rate
    return row


def test_the_row_with_the_least_room_bounds_the_drafts_of_all() -> None:
    """A token more would need a cell beyond its slot."""
    rows = [*drafting(1, speculative=True), *drafting(1, limit=4, speculative=True)]
    rows[1].seq_id = 1
    assert [len(draft) for draft in Speculator(FakeModel().traits).draft(rows, len(rows))] == [3, 3]


@pytest.mark.parametrize(("count", "length"), [(4, 15), (9, 7), (32, 1), (SCORED_AT_ONCE + 1, 0)])
def test_the_drafts_of_many_rows_fit_into_the_logits_of_one_step(count: int, length: int) -> None:
    drafts = Speculator(FakeModel().traits).draft(drafting(count, speculative=True), count)
    assert [len(draft) for draft in drafts] == [length] * count


def test_a_row_that_asks_for_drafts_does_not_ask_for_its_neighbours() -> None:
    rows = [*drafting(1, speculative=True), *drafting(1)]
    rows[1].seq_id = 1
    assert Speculator(FakeModel().traits).draft(rows, 2) == [(), ()], "it is not known yet how long a step takes"


@pytest.mark.parametrize("needs_checkpoints", [True, False])
def test_the_end_of_a_prompt_that_is_a_checkpoint_has_no_drafts(needs_checkpoints: bool) -> None:
    """The state is saved after the step, and would be that of the draft tokens."""
    speculator = Speculator(FakeModel(can_trim=not needs_checkpoints, max_draft=3).traits)
    (row,) = drafting(1, speculative=True)
    assert any(speculator.draft([row], 1)) is not needs_checkpoints
    row.advance(1, 0.0)
    row.tokens.append(ord("a"))
    assert any(speculator.draft([row], 1))


def test_where_a_rejection_takes_its_step_no_draft_is_padded() -> None:
    speculator = Speculator(replace(FakeModel().traits, drops_steps=True))
    (row,) = drafting(1, speculative=True)
    row.tokens, row.drafter = list(b"uvwxyzuvwabc"), NgramDrafter([7, *b"abc", 8, 9])
    row.drafter.acceptance_rate = 0.9
    assert speculator.draft([row], 1) == [(8,)], "the prediction has two tokens more, which are no length"


@pytest.mark.parametrize(("gain", "length"), [(1.05, 0), (1.15, 1)])
def test_drafts_must_make_a_text_a_tenth_faster(gain: float, length: int) -> None:
    speculator = measured({1: 1.0, **{1 + most: (1 + most) / gain for most in LENGTHS}})
    assert len(speculator.draft([always(1.0)], 1)[0]) == length


@pytest.mark.parametrize(("gain", "length"), [(1.8, 3), (1.98, 1)])
def test_a_shorter_draft_that_is_nearly_as_fast_is_preferred(gain: float, length: int) -> None:
    speculator = measured({1: 1.0, 2: 2 / gain, 4: 4 / 2.0, 8: 8 / 2.0, 16: 16 / 2.0})
    assert len(speculator.draft([always(1.0)], 1)[0]) == length


def test_a_step_with_drafts_is_not_believed_to_be_faster_than_one_without() -> None:
    assert measured({1: 1.0, 2: 0.1, 4: 0.1, 8: 0.1, 16: 0.1}).draft([always(0.05)], 1) == [()]


def test_where_drafts_are_wanted_a_slow_step_counts_as_one_step_for_each_token_at_most() -> None:
    speculator, row = measured({1: 1.0, 2: 100.0, 4: 100.0, 8: 100.0, 16: 100.0}), always(0.5)
    row.request = row.request.replaced(speculative=True)
    assert len(speculator.draft([row], 1)[0]) == 1, "more than one token is hardly right"


@pytest.mark.parametrize(("rate", "length"), [(0.3, 0), (0.7, 0), (0.95, 7)])
def test_drafts_that_take_their_step_with_them_must_be_accepted_more_often(rate: float, length: int) -> None:
    """A step of 2 rows takes a quarter longer than one without a draft, one of 16 three times as long."""
    speculator = measured({1: 1.0, 2: 1.25, 4: 1.6, 8: 2.2, 16: 3.0}, drops_steps=True)
    assert len(speculator.draft([always(rate)], 1)[0]) == length
    assert not any(speculator.draft([always(rate)], 2))


def test_guesses_of_which_one_in_nine_is_right_pay_for_themselves() -> None:
    rows = [always(0.9) for _ in range(3)]
    speculator = measured({3: 1.0}, max_draft=3)
    for _ in range(200):
        assert {len(draft) for draft in speculator.draft(rows, len(rows))} == {3}
        speculator.observe(12, 1.0, drawn=4, accepted=1)


def test_no_text_saves_up_more_than_the_first_credit() -> None:
    speculator, row = measured({1: 1.0}), always(0.9)
    speculator.observe(1, 1.0, drawn=10**6, accepted=0)
    wrong = 0
    while draft := speculator.draft([row], 1)[0]:
        wrong += len(draft)
        speculator.observe(1 + len(draft), 1.0, drawn=0, accepted=0)
    assert wrong == 64


def test_tokens_behind_a_short_draft_are_not_expected() -> None:
    (row,) = drafting(1)
    row.tokens, row.drafter = list(b"uvwxyzuvwabc"), NgramDrafter([7, *b"abc", 8])
    row.drafter.acceptance_rate = 0.9
    assert measured({1: 1.0}).draft([row], 1) == [(8,)]


def test_a_length_that_was_too_slow_is_tried_again_some_hundred_steps_later() -> None:
    speculator, row = measured({1: 1.0, 2: 2.0}, max_draft=1), always(0.9)
    without = 0
    while not speculator.draft([row], 1)[0]:
        without += 1
        assert without < 1000
    assert without > 100


def test_tokens_that_pad_a_row_are_no_guesses() -> None:
    """Two steps whose guesses are all wrong: with the tokens that pad eight rows, they would exceed the credit."""
    rows = drafting(9)
    for row in rows[1:]:
        row.drafter = None
    rows[0].drafter = always(0.9).drafter
    speculator = measured({9: 1.0})
    for _ in range(2):
        assert {len(draft) for draft in speculator.draft(rows, len(rows))} == {7}
        speculator.observe(72, 1.0, drawn=9, accepted=0)


@pytest.mark.parametrize(("rates", "length"), [((0.9, 0.9), 7), ((0.9, 0.5), 3), ((0.9, None), 1)])
def test_a_row_does_not_wait_for_the_drafts_of_others(rates: tuple[float | None, ...], length: int) -> None:
    """A draft of one token makes the step a twentieth longer. A row without drafts would get less of longer ones."""
    rows = [always(rate or 0.0) for rate in rates]
    for row, rate in zip(rows, rates, strict=True):
        if rate is None:
            row.drafter = None
    speculator = measured({2: 1.0, 4: 1.05, 8: 1.4, 16: 2.1, 32: 3.0})
    assert {len(draft) for draft in speculator.draft(rows, len(rows))} == {length}


@pytest.mark.parametrize(("running", "length"), [(1, 7), (2, 1)])
def test_a_prompt_does_not_wait_for_drafts(running: int, length: int) -> None:
    speculator = measured({1: 1.0, 2: 1.05, 4: 1.4, 8: 2.1, 16: 3.0})
    assert len(speculator.draft([always(0.9)], running)[0]) == length
