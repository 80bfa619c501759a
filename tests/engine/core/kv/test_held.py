"""The prefixes that a replica reports: what its slots and its host memory hold, by the labels of requests."""

import pytest

from engine.info import HeldPrefix
from engine.testing.fake_model import FakeModel
from tests.engine.driver import Driver

LONG = "x" * 200


def driver_of(slots: int = 2, store_budget: int = 0) -> Driver:
    return Driver(FakeModel(slots=slots, context=4096), store_budget=store_budget)


def held(driver: Driver) -> list[HeldPrefix]:
    return list(driver.scheduler.held())


def test_a_finished_prompt_is_held_with_its_text() -> None:
    driver = driver_of()
    driver.serve(LONG, label=7, max_tokens=3)
    [prefix] = held(driver)
    assert (prefix.label, prefix.prompt) == (7, 0)
    assert 200 < prefix.tokens == driver.ledger.cached_tokens


def test_a_running_prompt_is_held_as_far_as_it_is_computed() -> None:
    driver = driver_of()
    driver.add(LONG, label=7)
    assert held(driver) == []
    driver.step()
    assert held(driver) == [HeldPrefix(7, 0, driver.ledger.active_tokens)]


def test_each_prompt_has_its_index() -> None:
    driver = driver_of(slots=4)
    driver.serve("a" * 20, "b" * 20, label=7, n=2)
    assert sorted(prefix.prompt for prefix in held(driver)) == [0, 0, 1, 1]


@pytest.mark.parametrize("fields", [{}, {"label": 7, "cache_prompt": False}], ids=["no label", "not shared"])
def test_other_prompts_are_left_out(fields: dict[str, object]) -> None:
    driver = driver_of()
    driver.add(LONG, **fields)
    driver.step()
    assert held(driver) == []
    driver.drain()
    assert held(driver) == []


def test_a_cancelled_prompt_is_given_up() -> None:
    driver = driver_of()
    key = driver.add(LONG, label=7)
    driver.step()
    driver.cancel(key)
    driver.drain()
    assert held(driver) == []


def test_the_next_turn_takes_the_place_of_the_one_before() -> None:
    driver = driver_of()
    for label, prompt in enumerate([LONG, LONG + "y" * 20]):
        driver.serve(prompt, label=label)
    assert [prefix.label for prefix in held(driver)] == [1]


def test_an_evicted_prompt_is_held_while_it_is_stored() -> None:
    driver = driver_of(slots=1, store_budget=5000)
    for label, letter in enumerate("abcdefgh"):
        driver.serve(letter * 200, label=label)
    labels = [prefix.label for prefix in held(driver)]
    assert labels == [7, 6, 5]
    assert len(driver.store._prefixes) == len(labels) - 1


def test_a_checkpoint_without_its_cells_is_not_held() -> None:
    driver = Driver(FakeModel(slots=2, context=4096, can_trim=False), store_budget=10**6)
    driver.serve(LONG, label=7, max_tokens=3)
    assert any(stored.partial for stored in driver.store)
    assert [prefix.label for prefix in held(driver)] == [7]


def test_a_moved_prompt_keeps_its_label() -> None:
    driver = driver_of(slots=2)
    driver.add("a" * 30, label=1, max_tokens=1)
    driver.add("b" * 30, label=2, max_tokens=200)
    driver.step()
    while not driver.ledger.free:
        driver.step()
    for _ in range(5):
        driver.step()
    assert {prefix.label for prefix in held(driver)} == {1, 2}


def test_an_erased_slot_holds_nothing() -> None:
    driver = driver_of(slots=1)
    driver.serve(LONG, label=7)
    driver.ledger.erase(driver.ledger.slots[0])
    assert held(driver) == []


def test_what_an_erased_slot_held_is_not_held_in_host_memory_either() -> None:
    driver = driver_of(slots=1, store_budget=10**6)
    for label, letter in enumerate("aba"):
        driver.serve(letter * 200, label=label)
    assert [prefix.label for prefix in held(driver)] == [2, 0, 1]
    driver.ledger.erase(driver.ledger.slots[0])
    assert [prefix.label for prefix in held(driver)] == [1]
    driver.step()


def test_an_empty_slot_that_is_erased_is_like_no_saved_prefix() -> None:
    driver = Driver(FakeModel(slots=2, context=512), store_budget=10**6)
    for letter in "abc":
        driver.serve(letter * 150, slot=0, cache_partition=letter)
    stored = driver.scheduler.metrics().stored_tokens
    driver.ledger.erase(driver.ledger.slots[1])
    assert driver.scheduler.metrics().stored_tokens == stored > 0
