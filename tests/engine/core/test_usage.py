"""Usage of requests: counted until a cancel, and what a running step still computed after it."""

from engine.core.kv.prefix_store import WORTH_SAVING
from engine.events import Finished, FirstToken, Released
from engine.testing.fake_model import FakeModel
from tests.engine.driver import Driver

LONG = "x" * 4000


def released(driver: Driver, key: int) -> Released:
    """Return the release of a cancelled request, which comes with the next step."""
    driver.step()
    return driver.released(key)


def until_generated(driver: Driver, tokens: int) -> None:
    while driver.scheduler.metrics().generated_tokens < tokens:
        driver.step()


def test_a_cancelled_prompt_counts_as_far_as_it_was_computed() -> None:
    driver = Driver(FakeModel(slots=2, context=8192))
    key = driver.add(LONG)
    driver.step()
    computed = driver.scheduler.metrics().computed_prompt_tokens
    driver.cancel(key)
    assert released(driver, key) == Released("prefill", 0, computed, computed)
    assert 0 < computed < len(LONG)


def test_the_prompt_of_several_choices_counts_once() -> None:
    driver = Driver(FakeModel(slots=4))
    key = driver.add("abc", "de", n=2, max_tokens=100)
    until_generated(driver, 12)
    generated = driver.scheduler.metrics().generated_tokens
    driver.cancel(key)
    release = released(driver, key)
    assert (release.prompt_tokens, release.tokens, release.wasted) == (5, generated, 0)


def test_a_choice_that_ended_before_the_cancel_counts() -> None:
    driver = Driver(FakeModel(slots=1))
    key = driver.add("abc", "de", max_tokens=3)
    until_generated(driver, 4)
    driver.cancel(key)
    release = released(driver, key)
    assert (release.prompt_tokens, release.tokens) == (5, 4)


def test_reused_cells_of_a_cancelled_request_count_as_cached() -> None:
    driver = Driver(FakeModel(slots=1))
    driver.serve("x" * WORTH_SAVING, max_tokens=1)
    key = driver.add("x" * WORTH_SAVING + "y" * 100, max_tokens=50)
    until_generated(driver, 2)
    driver.cancel(key)
    release = released(driver, key)
    assert release.cached == driver.scheduler.metrics().reused_prompt_tokens == WORTH_SAVING
    assert release.prompt_tokens == WORTH_SAVING + 100


def test_reused_cells_that_a_preempted_prompt_finds_when_it_returns_count_as_cached() -> None:
    driver = Driver(FakeModel(slots=2, context=4096))
    key = driver.add("x" * 1000, "x" * 1000 + "y" * 200, max_tokens=200, client="one")
    driver.step()
    driver.add("z", max_tokens=1, client="other")
    while driver.scheduler.metrics().reused_prompt_tokens == 0:
        driver.step()
    assert driver.scheduler.metrics().preempted == 1
    driver.cancel(key)
    assert released(driver, key).cached == driver.scheduler.metrics().reused_prompt_tokens == 1000


def test_only_the_first_choice_of_a_prompt_counts_reused_cells() -> None:
    driver = Driver(FakeModel(slots=3))
    driver.serve("x" * WORTH_SAVING, max_tokens=1)
    key = driver.add("x" * WORTH_SAVING + "y" * 100, n=2, max_tokens=50)
    until_generated(driver, 6)
    assert driver.scheduler.metrics().reused_prompt_tokens == 2 * WORTH_SAVING + 100 - 1
    driver.cancel(key)
    assert released(driver, key).cached == WORTH_SAVING


def test_reused_cells_count_also_if_another_choice_of_the_prompt_has_ended_before() -> None:
    driver = Driver(FakeModel(slots=2))
    driver.serve("x" * WORTH_SAVING, max_tokens=1)
    key = driver.add("x" * WORTH_SAVING + "y" * 100, n=2, max_tokens=50)
    until_generated(driver, 6)
    second = next(slot.holder for slot in driver.ledger.slots if slot.holder and slot.holder.choice == 1)
    second.output.limit = second.generated + 1
    until_generated(driver, 12)
    assert any(isinstance(event, Finished) for event in driver.news[key])
    driver.cancel(key)
    assert released(driver, key).cached == WORTH_SAVING


def test_reused_cells_of_a_request_that_was_preempted_count_once() -> None:
    driver = Driver(FakeModel(slots=2))
    first = "x" * WORTH_SAVING
    driver.serve(first, max_tokens=1)
    key = driver.add(first + "y", "z" * 100, max_tokens=50, client="a")
    until_generated(driver, 6)
    driver.add("other", max_tokens=2, client="b")
    while driver.scheduler.metrics().preempted == 0 or driver.scheduler.metrics().waiting:
        driver.step()
    driver.cancel(key)
    assert released(driver, key).cached == WORTH_SAVING


def test_tokens_of_the_running_step_are_wasted_and_in_no_other_count() -> None:
    driver = Driver(FakeModel(slots=2))
    stays, leaves = driver.add("stays", max_tokens=50), driver.add("leaves", max_tokens=50)
    until_generated(driver, 6)
    before = driver.scheduler.metrics()
    plan = driver.step(during=lambda: driver.cancel(leaves))
    after = driver.scheduler.metrics()
    assert plan is not None
    assert plan.decode
    assert after.generated_tokens == before.generated_tokens + 1
    assert released(driver, leaves).wasted == 1
    driver.cancel(stays)
    assert released(driver, stays).wasted == 0


def test_a_prompt_chunk_of_the_running_step_is_wasted_as_a_whole() -> None:
    driver = Driver(FakeModel(slots=2, context=8192))
    leaves, stays = driver.add(LONG), driver.add("y" * 4000)
    plans = [driver.step(), driver.step(during=lambda: driver.cancel(leaves))]
    counts = [chunk.count for plan in plans if plan for chunk in plan.chunks if chunk.sequence.tokens[0] == ord("x")]
    release = released(driver, leaves)
    assert [release.prompt_tokens, release.wasted] == counts
    driver.cancel(stays)


def test_a_cancel_between_plan_and_pass_wastes_nothing() -> None:
    driver = Driver(FakeModel(slots=2))
    driver.add("stays", max_tokens=50)
    leaves = driver.add("leaves", max_tokens=50)
    until_generated(driver, 6)
    driver.step(before=lambda: driver.cancel(leaves))
    assert released(driver, leaves).wasted == 0


def test_a_request_has_one_first_token() -> None:
    driver = Driver(FakeModel(slots=2))
    keys = [driver.add("abc", n=2, max_tokens=5, stream=stream) for stream in (True, False)]
    driver.drain()
    assert [driver.news[key].count(FirstToken()) for key in keys] == [1, 1]


def test_read_tokens_are_computed_or_reused() -> None:
    driver = Driver(FakeModel(slots=1))
    for _ in range(3):
        driver.serve("x" * 300, max_tokens=2)
    metrics = driver.scheduler.metrics()
    assert metrics.computed_prompt_tokens + metrics.reused_prompt_tokens == 900
    assert metrics.reused_prompt_tokens == 2 * 299
    assert metrics.generated_tokens == 6


def test_the_generated_tokens_of_a_preempted_choice_are_none_of_its_prompt() -> None:
    driver = Driver(FakeModel(slots=2))
    driver.add("x" * 100, n=2, max_tokens=300, client="one")
    until_generated(driver, 200)
    driver.serve("y" * 100, max_tokens=2, client="other")
    metrics = driver.scheduler.metrics()
    assert metrics.preempted == 1
    assert metrics.computed_prompt_tokens + metrics.reused_prompt_tokens == 4 * 100, "one of three twice"


def test_the_own_cells_of_a_preempted_prompt_are_not_cached_ones() -> None:
    driver = Driver(FakeModel(slots=2, context=4096), store_budget=10**6)
    key = driver.add("x" * 600, "y" * 2000, max_tokens=50, client="one")
    while driver.ledger.slots[1].size < WORTH_SAVING:
        driver.step()
    driver.serve("z", client="other")
    metrics = driver.scheduler.metrics()
    assert (metrics.preempted, metrics.restored_tokens > 0) == (1, True)
    assert [event.cached for event in driver.news[key] if isinstance(event, Finished)] == [0, 0]


def test_the_prompt_of_a_cancelled_request_was_read_although_its_cells_were_discarded() -> None:
    driver = Driver(FakeModel(slots=1, context=64, shifts=True))
    key = driver.add("x" * 40, max_tokens=1000)
    until_generated(driver, 30)
    driver.cancel(key)
    assert released(driver, key).prompt_tokens == 40
