"""A full slot: tokens in its middle are discarded, and everything that counts or shares its cells stays right."""

import pytest
from typing_extensions import override

from engine.core.step import StepPlan, StepResult
from engine.core.window import ContextWindow
from engine.errors import RequestError
from engine.events import Finished
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver, continuation

SIZE = 32
PROMPT = "the quick brown fox"


def driver() -> Driver:
    return Driver(FakeModel(slots=2, context=SIZE, shifts=True))


def expected(prompt: str, tokens: int, keep: int = 0, discard: int = 0) -> str:
    return continuation(prompt, tokens, ContextWindow(SIZE, keep, discard))


@pytest.mark.parametrize(
    ("keep", "discard", "cells", "gap"),
    [(0, 0, 31, (0, 15)), (5, 0, 31, (5, 13)), (5, 4, 31, (5, 4)), (5, 1000, 31, (5, 25)), (1000, 0, 31, (28, 1))],
)
def test_half_of_what_need_not_stay_is_discarded(keep: int, discard: int, cells: int, gap: tuple[int, int]) -> None:
    assert ContextWindow(SIZE, keep, discard).gap(cells) == gap


@pytest.mark.parametrize(("keep", "discard"), [(0, 1), (4096, 0), (4096, 1), (10**9, 10**9)])
def test_no_request_shifts_with_every_token(keep: int, discard: int) -> None:
    assert ContextWindow(4096, keep, discard).gap(4095)[1] >= 4096 // 17


@pytest.mark.parametrize("size", range(2, 8))
@pytest.mark.parametrize("keep", [0, 3, 100])
def test_every_gap_makes_room(size: int, keep: int) -> None:
    start, count = ContextWindow(size, keep, 0).gap(size - 1)
    assert count >= 1
    assert 0 <= start < start + count <= size - 1


@pytest.mark.parametrize(("keep", "discard"), [(0, 0), (4, 0), (-1, 3), (19, 5)])
@pytest.mark.parametrize("speculative", [False, True])
def test_a_text_goes_on_when_its_slot_is_full(keep: int, discard: int, *, speculative: bool) -> None:
    run = driver()
    key = run.serve(PROMPT, max_tokens=100, keep=keep, discard=discard, speculative=speculative)
    assert run.text(key) == expected(PROMPT, 100, len(PROMPT) if keep < 0 else keep, discard)
    end = run.finished(key)
    assert (end.tokens, end.cached) == (100, 0)
    assert end.discarded > 80
    assert max(len(cells) for cells in run.run.cache.cells.values()) < SIZE


@pytest.mark.parametrize("discard", [0, 4])
def test_accepted_draft_tokens_do_not_change_which_tokens_are_discarded(discard: int) -> None:
    model = FakeModel(slots=1, context=SIZE, shifts=True)
    ends = []
    for speculative in (True, False):
        run = Driver(model, FakeRunner(model, script=lambda tokens: 97 + (sum(tokens[-2:]) + len(tokens) // 8) % 3))
        key = run.serve(PROMPT, max_tokens=200, discard=discard, speculative=speculative)
        assert (run.scheduler.metrics().accepted > 50) == speculative
        end = run.finished(key)
        ends.append((run.text(key), end.discarded))
    assert ends[0] == ends[1]


def test_a_prompt_that_is_only_read_may_fill_its_slot() -> None:
    run = driver()
    for cached in (0, SIZE - 1):
        key = run.serve("x" * SIZE, max_tokens=0)
        end = run.finished(key)
        assert (end.cached, end.discarded) == (cached, 0)
        assert run.scheduler.metrics().cached_tokens == SIZE


def test_the_counts_of_tokens_are_those_of_all_tokens() -> None:
    run = driver()
    run.serve(PROMPT, max_tokens=100, speculative=False)
    metrics = run.scheduler.metrics()
    assert (metrics.generated_tokens, metrics.computed_prompt_tokens) == (100, len(PROMPT))
    assert (metrics.active_tokens, metrics.held) == (0, 0)


def test_neighbours_do_not_notice() -> None:
    run = driver()
    keys = [run.add(PROMPT, max_tokens=60), run.add("another one", max_tokens=20)]
    run.drain()
    assert [run.text(key) for key in keys] == [expected(PROMPT, 60), expected("another one", 20)]


def test_a_cancel_after_a_shift_frees_every_cell() -> None:
    run = driver()
    key = run.add(PROMPT, max_tokens=1000)
    for _ in range(50):
        run.step()
    run.cancel(key)
    run.drain()
    end = run.released(key)
    assert 0 < end.freed < SIZE
    assert not any(run.run.cache.cells.values())
    assert run.scheduler.metrics().active_tokens == 0


def test_cells_behind_discarded_ones_are_never_reused() -> None:
    run = driver()
    first = run.serve(PROMPT, max_tokens=40)
    assert run.scheduler.metrics().cached_tokens == 0
    again = run.serve(PROMPT, max_tokens=8)
    assert run.text(again) == run.text(first)[:8]
    assert run.finished(again).cached == 0


def test_a_beginning_is_not_copied_from_a_sequence_that_has_discarded_tokens() -> None:
    run = driver()
    first = run.add(PROMPT, max_tokens=100)
    for _ in range(40):
        run.step()
    second = run.serve(PROMPT, max_tokens=8)
    assert run.text(second) == run.text(first)[:8]


def test_a_preempted_sequence_computes_again_what_it_still_knows() -> None:
    model = FakeModel(slots=2, context=SIZE, shifts=True)
    run = Driver(model, FakeRunner(model, capacity=SIZE + 12))
    keys = [run.add(PROMPT, max_tokens=80, speculative=False), run.add("another one", max_tokens=80, speculative=False)]
    run.drain()
    assert run.scheduler.metrics().preempted > 0
    assert [run.text(key) for key in keys] == [expected(PROMPT, 80), expected("another one", 80)]


def test_a_limit_beyond_the_context_is_refused_without_shifts() -> None:
    run = Driver(FakeModel(slots=2, context=SIZE))
    with pytest.raises(RequestError):
        run.add(PROMPT, max_tokens=SIZE)


@pytest.mark.parametrize(("fields", "tokens"), [({}, SIZE - len(PROMPT)), ({"default_max_tokens": 50}, 50)])
def test_without_a_limit_a_text_ends_with_its_context_or_by_the_default(fields: dict[str, int], tokens: int) -> None:
    run = driver()
    key = run.serve(PROMPT, max_tokens=None, **fields)
    assert len(run.text(key)) == tokens


def test_a_prompt_must_fit() -> None:
    with pytest.raises(RequestError):
        driver().add("x" * SIZE, max_tokens=1)


class _Slots(FakeRunner):
    """A runner that checks that each sequence fits into its slot."""

    @override
    def run(self, plan: StepPlan) -> StepResult:
        assert all(chunk.start + chunk.rows <= SIZE for chunk in plan.chunks)
        return super().run(plan)


@pytest.mark.parametrize("steps", range(2, 30))
def test_a_choice_that_gives_way_with_a_full_slot_fits_into_one_again(steps: int) -> None:
    model = FakeModel(slots=2, context=SIZE, shifts=True)
    run = Driver(model, _Slots(model, script=lambda tokens: 97 + len(tokens) % 3))
    key = run.add("abc" * (SIZE // 6), n=2, max_tokens=5 * SIZE, speculative=True, client="A")
    for _ in range(steps):
        run.step()
    run.serve("other", max_tokens=3, client="B")
    assert isinstance(run.last(key), Finished)
    assert run.scheduler.metrics().preempted > 0
