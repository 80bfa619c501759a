"""The sizes of the chunks of a prompt step."""

from itertools import groupby

import pytest

from engine.core.budget import LARGEST
from engine.core.planner import chunk_of, first_parts
from engine.core.scheduler import Scheduler
from engine.core.sequence import Sequence
from engine.core.step import StepPlan, StepResult
from engine.events import Finished
from engine.llama.memory.parameters import BATCH_ROWS
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver, request

TILE = 64


def tiled(slots: int = 4, largest_step: int = LARGEST) -> FakeModel:
    return FakeModel(slots=slots, context=4096, min_prefill_chunk=TILE, prefill_tile=TILE, largest_step=largest_step)


def chunks(driver: Driver) -> list[list[tuple[int, int]]]:
    """Return the start and the length of each chunk of each prompt step."""
    return [[(chunk.start, chunk.count) for chunk in plan.chunks] for plan in driver.plans if not plan.decode]


@pytest.mark.parametrize(
    ("tokens", "budget", "most", "chunk"),
    [
        (81, 64, 80, 17),
        (138, 64, 80, 74),
        (2000, 64, 80, 80),
        (2000, 64, 64, 16),  # the model allows no more
        (2000, 256, 320, 272),
        (2088, 256, 320, 232),  # as fast as the next ones, which stay whole tiles
        (2000, 48, 60, 48),
    ],
)
def test_a_chunk_leaves_whole_tiles(tokens: int, budget: int, most: int, chunk: int) -> None:
    assert chunk_of(tokens, budget, most, TILE) == chunk


@pytest.mark.parametrize(
    ("waiting", "shared", "taken"),
    [
        ([80], 1000, [80]),
        ([81], 1000, [17]),
        ([64, 10], 1000, [64]),
        ([40, 40], 1000, [40, 40]),
        ([40, 41, 16], 1000, [40, 16]),
        ([40, 1, 1, 1], 1000, [40, 1, 1]),  # each takes the room of a weight pass
        ([40, 16], 40, [40]),
        ([40, 16], 56, [40, 16]),
        ([80, 16], 40, [80]),
    ],
)
def test_a_step_takes_whole_parts_as_long_as_they_fit(waiting: list[int], shared: int, taken: list[int]) -> None:
    sequence = Sequence(request(), 0, [1], 1)
    parts = [(sequence, tokens) for tokens in waiting]
    assert [tokens for _, tokens in first_parts(parts, 64, 80, TILE, shared)] == taken


def test_a_part_is_not_cut_for_a_short_rest_also_where_a_tile_is_larger_than_the_step() -> None:
    sequence = Sequence(request(), 0, [1], 1)
    assert first_parts([(sequence, 80)], 64, 80, 128, 1000) == [(sequence, 80)]


def test_a_long_prompt_beside_a_stream_is_computed_in_tiles_and_its_odd_part_first() -> None:
    driver = Driver(tiled())
    driver.add("a", max_tokens=100)
    driver.step()
    driver.serve("b" * 1000, max_tokens=1)
    [first, *others] = [step[0][1] for step in chunks(driver)]
    assert first == 1000 % TILE
    assert set(others) == {TILE}


def test_deep_prompts_have_steps_of_their_own() -> None:
    driver = Driver(tiled())
    for letter in "abcd":
        driver.add(letter * 600, max_tokens=1)
    driver.drain()
    deep = [step for step in chunks(driver) if min(start for start, _ in step) >= 4 * TILE]
    assert len(deep) > 10
    assert all(len(step) == 1 for step in deep)


def test_the_prompts_of_a_burst_end_one_after_another() -> None:
    driver = Driver(tiled(slots=8))
    keys = [driver.add(letter * 200, max_tokens=1) for letter in "abcdefgh"]
    ends = []
    for _ in range(40):
        driver.step()
        ends += [key for key in keys if key not in ends and isinstance(driver.last(key), Finished)]
        started = [slot for slot in driver.scheduler.inspect() if slot.state == "prefill" and slot.active_tokens]
        assert len(started) <= 1
    assert ends == keys


def test_a_short_prompt_does_not_wait_for_long_ones() -> None:
    driver = Driver(tiled())
    for letter in "abc":
        driver.add(letter * 2000, max_tokens=1)
    for _ in range(9):
        driver.step()
    short = driver.add("d" * 30, max_tokens=1)
    driver.step()
    driver.step()
    assert isinstance(driver.last(short), Finished)


def test_short_prompts_share_steps_also_beside_a_long_one() -> None:
    driver = Driver(tiled(slots=32))
    driver.add("a", max_tokens=4000)
    driver.step()
    driver.add("b" * 4000, max_tokens=1)
    keys = [driver.add(f"{at:02}" + "c" * (12 + at), max_tokens=1) for at in range(24)]
    while any(key in driver.scheduler for key in keys):
        driver.step()
    assert len(driver.plans) < 40


@pytest.mark.parametrize("budget", [64, 256])
def test_a_step_beside_a_stream_has_few_weight_passes(budget: int) -> None:
    """Chunks of unlike length in neighbouring slots need one each."""
    driver = Driver(FakeModel(slots=32, context=1024, min_prefill_chunk=budget))
    driver.add("a", max_tokens=100)
    driver.step()
    for at in range(31):
        driver.add(f"{at:02}" + "c" * (3 + 7 * (at % 2)), max_tokens=1)
    plan = driver.compute()
    assert not plan.decode
    assert len(list(plan.weight_passes())) <= budget / 16 * 5 / 4


def test_the_deepest_prompt_of_a_step_sizes_it() -> None:
    driver = Driver(FakeModel(slots=4, context=16_384, min_prefill_chunk=64))
    beginning = "bx" * 1000
    driver.add("a", max_tokens=1000)
    cached = driver.add(beginning, max_tokens=1)
    driver.finish(cached)
    budget = driver.scheduler._planner._budget
    budget._rates.clear()
    budget.observe(256, 0.1)
    budget.observe(64, 0.1, depth=2000)
    driver.add(beginning + "d" * 150, max_tokens=1)
    driver.add("c" * 20, max_tokens=1)
    kinds = [plan.decode for plan in (driver.step(), driver.step()) if plan]
    assert kinds == [True, False]
    assert chunks(driver)[-1] == [(0, 20)], "a part of the deep one would take longer than the target"


def test_a_long_prompt_has_every_second_step_beside_endless_short_ones() -> None:
    driver = Driver(tiled())
    long = driver.add("a" * 2000, max_tokens=1)
    while not driver.has_finished(long):
        driver.add(f"{len(driver.plans):04}" + "b" * 60, max_tokens=1)
        driver.step()
    of_long = [any(chunk.sequence.tokens[0] == ord("a") for chunk in plan.chunks) for plan in driver.plans]
    assert max(len(list(steps)) for mine, steps in groupby(of_long) if not mine) == 1


def test_shallow_prompts_share_a_step() -> None:
    driver = Driver(tiled(slots=8))
    for letter in "abcdefgh":
        driver.add(letter * 17, max_tokens=1)
    driver.drain()
    assert [len(step) for step in chunks(driver)[:2]] == [4, 4]


class Weightless(FakeRunner):
    """A runner whose steps take a millisecond for each token, and decode steps a given time more."""

    def __init__(self, model: FakeModel, decode: float) -> None:
        super().__init__(model)
        self.decode = decode

    def run(self, plan: StepPlan) -> StepResult:
        return super().run(plan)._replace(seconds=0.001 * plan.tokens + (self.decode if plan.decode else 0.0))


@pytest.mark.parametrize(("decode", "prompts_of_step"), [(0.0, 1), (0.1, 4)])
def test_prompts_that_take_longer_than_decode_steps_have_steps_of_their_own(
    decode: float, prompts_of_step: int
) -> None:
    model = tiled(slots=8)
    driver = Driver(model, Weightless(model, decode))
    driver.scheduler = Scheduler(driver.ledger, step_target=60.0, queue_limit=8)
    driver.add("measured" * 8, max_tokens=1000)
    for _ in range(5):
        driver.step()
    keys = [driver.add(letter * 200, max_tokens=1) for letter in "abcd"]
    while any(key in driver.scheduler for key in keys):
        driver.step()
    assert [len(step) for step in chunks(driver)[1:]] == [prompts_of_step] * (4 // prompts_of_step)


def test_the_prompts_of_one_request_share_a_step_where_no_other_waits_for_it() -> None:
    model = tiled(slots=8)
    driver = Driver(model, Weightless(model, decode=0.0))
    driver.scheduler = Scheduler(driver.ledger, step_target=60.0, queue_limit=8)
    driver.serve("measured" * 8, max_tokens=5)
    driver.serve(*(letter * 200 for letter in "abcd"), max_tokens=1)
    assert [len(step) for step in chunks(driver)[1:]] == [4]


def test_equal_chunks_are_computed_in_neighbouring_slots() -> None:
    driver = Driver(tiled(slots=8))
    keys = [driver.add(letter * 30, max_tokens=1) for letter in "abcde"]
    driver.step(during=lambda: driver.cancel(keys[3]))
    plan = driver.compute()
    assert [chunk.count for chunk in plan.chunks] == [30, 30]
    assert len(list(plan.weight_passes())) == 1, "the last one has moved beside the other"


class Instant(FakeRunner):
    """A runner that takes hardly any time."""

    def run(self, plan: StepPlan) -> StepResult:
        return super().run(plan)._replace(seconds=1e-6)


@pytest.mark.parametrize("length", [19, 20, 65, 79, 2500])
def test_no_step_has_more_rows_than_a_batch(length: int) -> None:
    model = tiled(slots=BATCH_ROWS // length + 20)
    driver = Driver(model, Instant(model))
    driver.serve("measured" * 8, max_tokens=1)
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
