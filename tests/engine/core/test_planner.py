"""The sizes of the chunks of a prompt step."""

from dataclasses import replace

import pytest

from engine.core.budget import LARGEST
from engine.core.planner import divide_budget
from engine.core.step import StepPlan, StepResult
from engine.llama.memory.parameters import BATCH_ROWS
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver

TILE = 64


def tiled(slots: int = 4, largest_step: int = LARGEST) -> FakeModel:
    return FakeModel(slots=slots, context=4096, min_prefill_chunk=TILE, prefill_tile=TILE, largest_step=largest_step)


def chunks(driver: Driver) -> list[list[tuple[int, int]]]:
    """Return the start and the length of each chunk of each prompt step."""
    return [[(chunk.start, chunk.count) for chunk in plan.chunks] for plan in driver.plans if not plan.decode]


@pytest.mark.parametrize(
    ("wants", "budget", "least", "shares"),
    [
        ([80], 64, 64, [80]),  # a rest of 16 would take a step of its own
        ([81], 64, 64, [17]),  # from here on there are whole tiles
        ([138], 64, 64, [74]),
        ([2000], 64, 64, [80]),
        ([2000], 256, 64, [272]),
        ([2000, 2000], 192, 64, [80, 80]),
        ([30, 30], 64, 64, [30, 30]),
        ([500, 500, 500, 500], 64, 16, [16, 16, 16, 16]),
        ([100, 10], 64, 64, [36, 10]),
    ],
)
def test_chunks_are_whole_tiles_but_for_the_first(wants: list[int], budget: int, least: int, shares: list[int]) -> None:
    assert divide_budget(wants, budget, least, tiled().traits) == shares


def test_a_long_prompt_beside_a_stream_is_computed_in_tiles_and_its_odd_part_first() -> None:
    driver = Driver(tiled())
    driver.add("a", max_tokens=100)
    driver.step()
    driver.add("b" * 1000, max_tokens=1)
    driver.drain()
    [first, *others] = [step[0][1] for step in chunks(driver)]
    assert first == 999 % TILE
    assert set(others) == {TILE}


def test_deep_prompts_take_turns_with_chunks_of_their_own() -> None:
    driver = Driver(tiled())
    for letter in "abcd":
        driver.add(letter * 600, max_tokens=1)
    driver.drain()
    deep = [step for step in chunks(driver) if min(start for start, _ in step) >= 4 * TILE]
    assert len(deep) > 10
    assert all(len(step) == 1 for step in deep)


def test_shallow_prompts_share_a_step() -> None:
    driver = Driver(tiled(slots=8))
    for letter in "abcdefgh":
        driver.add(letter * 17, max_tokens=1)
    driver.drain()
    assert [len(step) for step in chunks(driver)[:2]] == [4, 4]


class Instant(FakeRunner):
    """A runner that takes hardly any time."""

    def run(self, plan: StepPlan) -> StepResult:
        return replace(super().run(plan), seconds=1e-6)


@pytest.mark.parametrize("length", [19, 20, 65, 79, 2500])
def test_no_step_has_more_rows_than_a_batch(length: int) -> None:
    model = tiled(slots=BATCH_ROWS // length + 20)
    driver = Driver(model, Instant(model))
    driver.add("measured" * 8, max_tokens=1)
    driver.drain()
    for number in range(model.info.slots):
        driver.add(f"{number:04}{number * 'x'}"[:length].ljust(length, "y"), max_tokens=1)
    driver.step()
    assert 1000 < driver.plans[-1].tokens <= BATCH_ROWS


def test_no_step_is_larger_than_the_model_allows() -> None:
    model = tiled(slots=8, largest_step=512)
    driver = Driver(model, Instant(model))
    for letter in "abcdefgh":
        driver.add(letter * 1000, max_tokens=1)
    driver.drain()
    assert max(plan.tokens for plan in driver.plans) == model.traits.largest_step
