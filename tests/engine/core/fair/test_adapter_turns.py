"""Turns among sets of LoRA adapters: one set in each step, fair shares of the time, and a bounded wait."""

from collections import Counter
from itertools import groupby

import pytest
from typing_extensions import override

from engine.core.step import StepPlan, StepResult
from engine.events import Finished, Released
from engine.request import AdapterSet
from engine.testing.fake_model import FakeModel, adapted, letters
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver
from tests.repeat import first

BASE: AdapterSet = ()
ONE: AdapterSet = ((0, 1.0),)
OTHER: AdapterSet = ((1, 0.5),)
TARGET = 0.1
"""Seconds. The driver's step target."""


class Timed(FakeRunner):
    """A runner whose steps take a time for each row, and more after a change of the adapters."""

    def __init__(self, model: FakeModel, *, change: float, row: float = 0.002, token: float = 0.001) -> None:
        super().__init__(model)
        self.change, self.row, self.token = change, row, token
        self.adapters: AdapterSet = BASE
        self.spent: list[tuple[AdapterSet, float]] = []
        """The set and the duration of each step."""

    @override
    def run(self, plan: StepPlan) -> StepResult:
        seconds = 0.008 + self.row * len(plan.chunks) if plan.decode else self.token * plan.tokens
        seconds += self.change if plan.adapters != self.adapters else 0.0
        self.adapters = plan.adapters
        self.spent.append((plan.adapters, seconds))
        return super().run(plan)._replace(seconds=seconds)


def loaded(change: float = 0.005, slots: int = 12) -> tuple[Driver, Timed]:
    model = FakeModel(slots=slots, context=4096, min_prefill_chunk=16)
    runner = Timed(model, change=change)
    return Driver(model, runner), runner


def start(driver: Driver, sets: dict[AdapterSet, int], **fields: object) -> None:
    """Add requests that generate for long, so many for each set, and compute their prompts."""
    for at in range(max(sets.values())):
        for adapters, count in sets.items():
            if at < count:
                driver.add(f"{at}", adapters=adapters, max_tokens=4000, **fields)
    for _ in range(4 * len(sets)):
        driver.step()


def run_for(driver: Driver, runner: Timed, seconds: float) -> Counter[AdapterSet]:
    """Run steps for so long. Return the time of each set."""
    runner.spent.clear()
    while sum(spent for _, spent in runner.spent) < seconds:
        driver.step()
    shares: Counter[AdapterSet] = Counter()
    for adapters, spent in runner.spent:
        shares[adapters] += spent  # type: ignore[assignment]
    return shares


def turns(runner: Timed) -> list[tuple[AdapterSet, float]]:
    """Return the complete turns, each with its duration."""
    whole = [(one, sum(seconds for _, seconds in steps)) for one, steps in groupby(runner.spent, lambda step: step[0])]
    return whole[1:-1]


def test_each_set_gets_what_it_computes_alone() -> None:
    driver = Driver(FakeModel(slots=6))
    asked = {driver.add("hello", adapters=one): one for _ in range(2) for one in (BASE, ONE, OTHER)}
    driver.drain()
    for key, one in asked.items():
        known = list(b"hello")
        while len(known) < 13:
            known.append(adapted(letters(known), one))
        assert driver.text(key) == bytes(known[5:]).decode()


@pytest.mark.parametrize(
    "sets",
    [{BASE: 3, ONE: 3}, {BASE: 2, ONE: 2, OTHER: 2}, {BASE: 8, ONE: 1}, {BASE: 8, ONE: 1, OTHER: 1}],
    ids=lambda sets: "-".join(map(str, sets.values())),
)
@pytest.mark.parametrize("change", [0.005, 0.02])
def test_no_set_waits_longer_than_the_step_target_and_a_step_of_each_other(
    sets: dict[AdapterSet, int], change: float
) -> None:
    driver, runner = loaded(change)
    start(driver, sets)
    run_for(driver, runner, 6.0)
    longest = {one: max(spent for computed, spent in runner.spent if computed == one) for one in sets}
    for one in sets:
        runs = groupby(runner.spent, lambda step, one=one: step[0] == one)  # type: ignore[misc]
        waits = [sum(spent for _, spent in steps) for mine, steps in runs if not mine]
        assert max(waits[1:-1]) < TARGET + sum(longest.values()) - longest[one]


def test_sets_share_the_time_by_the_number_of_their_sequences() -> None:
    driver, runner = loaded()
    start(driver, {BASE: 4, ONE: 4})
    even = run_for(driver, runner, 20.0)
    assert 0.95 < even[BASE] / even[ONE] < 1.05
    driver, runner = loaded()
    start(driver, {BASE: 6, ONE: 2})
    uneven = run_for(driver, runner, 20.0)
    assert 1.9 < uneven[BASE] / uneven[ONE] < 3.3


def test_a_set_without_sequences_gives_its_turn_away_at_once() -> None:
    driver, _ = loaded()
    start(driver, {BASE: 1, ONE: 1, OTHER: 1})
    while driver.plans[-1].adapters != ONE:
        driver.step()
    driver.cancel(2)
    plan = driver.compute()
    assert plan.adapters != ONE


def test_a_long_prompt_of_a_set_gets_its_share_beside_decodes() -> None:
    driver, runner = loaded()
    start(driver, {BASE: 4})
    key = driver.add("x" * 3000, adapters=ONE, max_tokens=1)
    shares = run_for(driver, runner, 2.0)
    assert shares[ONE] > 0.4
    assert shares[BASE] > 0.8
    driver.cancel(key)


def test_prompt_steps_of_several_sets_share_the_target() -> None:
    driver, _ = loaded(0.0)
    for one in (BASE, ONE, OTHER):
        driver.add("x" * 2000, adapters=one, max_tokens=1)
    plans = [plan for plan in (driver.step() for _ in range(30)) if plan]
    assert {plan.adapters for plan in plans} == {BASE, ONE, OTHER}
    assert all(plan.tokens <= 50 for plan in plans[3:]), "100 tokens take the target time, and two sets wait"


@pytest.mark.parametrize("change", first(1, [0.002, 0.0, 0.008]))
def test_changes_take_about_a_tenth_of_the_time(change: float) -> None:
    driver, runner = loaded(change)
    start(driver, {BASE: 4, ONE: 4})
    run_for(driver, runner, 20.0)
    changes = len(turns(runner))
    metrics = driver.scheduler.metrics()
    assert metrics.adapter_change_seconds == pytest.approx(change)
    assert 0 <= metrics.adapter_changes - changes < 12, "some turns were before"
    assert change * changes < 0.12 * 20.0
    assert changes > 20.0 / (TARGET + 0.05), "no turn is longer than it has to be"


def test_the_time_of_a_prompt_does_not_count_as_the_cost_of_a_change() -> None:
    driver, runner = loaded(0.0)
    start(driver, {BASE: 2, ONE: 2})
    driver.add("x" * 2000, adapters=ONE)
    run_for(driver, runner, 5.0)
    assert driver.scheduler.metrics().adapter_change_seconds == pytest.approx(0.0, abs=1e-9)


def test_a_set_does_not_wait_for_what_another_could_not_use_before() -> None:
    """A set of one sequence gets at least a step a turn: more than its share, beside many sequences."""
    driver, runner = loaded(change=0.0, slots=32)
    start(driver, {BASE: 16, ONE: 1})
    before = run_for(driver, runner, 30.0)
    assert before[ONE] / before[BASE] > 1.1 / 16
    for _ in range(15):
        driver.add("y", adapters=ONE, max_tokens=4000)
    even = run_for(driver, runner, 3.0)
    assert 0.7 < even[BASE] / even[ONE] < 1.4


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 30])
def test_a_cancel_frees_its_slot_in_each_phase(steps: int) -> None:
    driver, _ = loaded(slots=2)
    keys = [driver.add("a" * 300, adapters=one, max_tokens=50) for one in (ONE, OTHER, BASE)]
    for _ in range(steps):
        driver.step()
    for key in keys[:2]:
        driver.cancel(key)
    driver.step()
    assert all(isinstance(driver.last(key), Released) for key in keys[:2])
    driver.drain()
    assert isinstance(driver.last(keys[2]), Finished)
    assert driver.scheduler.metrics().active_tokens == 0


def test_sets_share_no_cells() -> None:
    driver, _ = loaded()
    prompt = "p" * 600
    for one in (BASE, ONE, OTHER, ((0, 0.5),)):
        key = driver.serve(prompt, adapters=one)
        assert driver.finished(key).cached == 0
    for same in (((0, 1.0), (1, 0.0)), ONE):
        key = driver.serve(prompt, adapters=same)
        assert driver.finished(key).cached == 599


def test_a_partition_cannot_imitate_a_set() -> None:
    driver, _ = loaded()
    for partition, one in (("0:1.0|", BASE), ("", ONE), ("|0:1.0", BASE), ("0:1.0|", ONE)):
        key = driver.serve("p" * 600, cache_partition=partition, adapters=one)
        assert driver.finished(key).cached == 0
