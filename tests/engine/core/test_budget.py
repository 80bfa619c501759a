"""The prefill budget: the number of prompt tokens in one pass."""

import pytest

from engine.core.budget import LARGEST, UNHURRIED, PromptBudget
from engine.core.step import StepPlan, StepResult
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver


def test_an_unmeasured_budget_is_the_smallest_efficient_pass() -> None:
    budget = PromptBudget(0.25, smallest=16)
    assert budget.tokens(hurried=True) == 16
    assert budget.tokens(hurried=False) == 16


@pytest.mark.parametrize(("seconds", "tokens"), [(0.5, UNHURRIED), (32.0, 20), (64.0, 16)])
def test_a_pass_that_delays_no_other_is_large_but_takes_seconds_only(seconds: float, tokens: int) -> None:
    budget = PromptBudget(0.25, smallest=16)
    budget.observe(64, seconds)
    assert budget.tokens(hurried=False) == tokens


@pytest.mark.parametrize(("depth", "tokens"), [(100, 125), (600, 125), (1500, 25), (2040, 25), (9000, 25)])
def test_the_pass_fits_the_target_at_the_speed_of_the_nearest_measured_depth(depth: int, tokens: int) -> None:
    budget = PromptBudget(0.25, smallest=16)
    budget.observe(100, 0.2, depth=0)
    budget.observe(100, 1.0, depth=2000)
    assert budget.tokens(hurried=True, depth=depth) == tokens


@pytest.mark.parametrize(("smallest", "tokens"), [(64, 64), (16, 25)])
def test_a_chunk_below_the_efficient_size_is_not_cut(smallest: int, tokens: int) -> None:
    budget = PromptBudget(0.25, smallest=smallest)
    budget.observe(64, 0.64)
    assert budget.tokens(hurried=True) == tokens


def test_steps_for_which_others_wait_share_the_target() -> None:
    budget = PromptBudget(1.0, smallest=16)
    budget.observe(100, 1.0)
    assert [budget.tokens(hurried=True, steps=steps) for steps in (1, 2, 4, 100)] == [100, 50, 25, 16]


@pytest.mark.parametrize(("fitting", "tokens"), [(64, 64), (100, 96), (119, 96), (120, 128), (128, 128)])
def test_a_pass_has_whole_tiles_the_last_of_which_fits_but_for_a_quarter(fitting: int, tokens: int) -> None:
    budget = PromptBudget(1.0, smallest=32, tile=32)
    budget.observe(fitting, 1.0)
    assert budget.tokens(hurried=True) == tokens


def test_no_pass_exceeds_a_call_also_where_that_is_less_than_what_is_efficient() -> None:
    budget = PromptBudget(1.0, smallest=64, largest=48)
    assert budget.tokens(hurried=True) == 48
    budget.observe(48, 1.0)
    assert (budget.tokens(hurried=True), budget.tokens(hurried=False)) == (48, 48)


def test_a_fast_machine_computes_as_much_as_a_call_takes() -> None:
    budget = PromptBudget(0.25)
    budget.observe(512, 0.001)
    assert budget.tokens(hurried=True) == LARGEST


def test_the_speed_is_an_average_of_the_last_passes() -> None:
    budget = PromptBudget(1.0)
    budget.observe(100, 1.0)
    budget.observe(200, 1.0)
    assert 100 < budget.tokens(hurried=True) < 200


@pytest.mark.parametrize("factor", [0.05, 20.0])
def test_a_pass_that_other_processes_delayed_changes_nothing(factor: float) -> None:
    budget = PromptBudget(1.0)
    for seconds in (1.0, 1.0, factor, 1.0, factor, 1.0, 1.0):
        budget.observe(100, seconds)
        assert budget.tokens(hurried=True) == 100


def test_a_machine_that_is_slower_for_longer_is_noticed() -> None:
    budget = PromptBudget(1.0)
    for seconds in (1.0,) * 9 + (1.25,) * 3:
        budget.observe(100, seconds)
    assert budget.tokens(hurried=True) == 80


def test_passes_without_a_measurement_are_ignored() -> None:
    budget = PromptBudget(1.0)
    budget.observe(100, 1.0)
    budget.observe(31, 0.001)
    budget.observe(100, 0.0)
    assert budget.tokens(hurried=True) == 100


def test_several_prompts_share_a_step_of_some_decode_steps_at_most() -> None:
    budget = PromptBudget(10.0, smallest=16)
    budget.observe(100, 0.1)
    assert budget.shared_tokens(0) == LARGEST, "unmeasured"
    for seconds in (0.02, 0.02, 5.0):
        budget.observe_decode(seconds)
    assert budget.shared_tokens(0) == 160


def test_short_prompts_share_a_step_however_fast_a_decode_step_is() -> None:
    budget = PromptBudget(10.0, smallest=16)
    budget.observe(100, 0.1)
    budget.observe_decode(1e-6)
    assert budget.shared_tokens(0) == 32


class Attending(FakeRunner):
    """A runner that takes a millisecond per token, and one more for each thousand tokens before it."""

    def run(self, plan: StepPlan) -> StepResult:
        return super().run(plan)._replace(seconds=0.001 * plan.tokens * (1 + plan.depth / 1000))


def test_a_long_prompt_keeps_to_the_target_down_to_its_end() -> None:
    model = FakeModel(context=8192, min_prefill_chunk=16)
    driver = Driver(model, Attending(model))
    driver.add("a", max_tokens=1000)
    driver.step()
    driver.add("b" * 6000, max_tokens=1)
    passes = [plan for plan in iter(driver.step, None) if not plan.decode]
    late = [plan for plan in passes if plan.depth > 512]
    assert len(late) > 100
    assert all(0.001 * plan.tokens * (1 + plan.depth / 1000) < 0.13 for plan in late), "the target is 0.1 s"
    assert late[0].tokens > 3 * late[-2].tokens
