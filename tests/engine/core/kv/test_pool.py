"""A pool of cells that all slots share."""

import pytest

from engine.core.kv.cell_changes import Copy, Removal, Restore
from engine.core.kv.pool import CellPool
from engine.events import Failed
from engine.testing.fake_model import FakeModel
from tests.engine.driver import Driver


def pooled(cells: int, slots: int = 4, *, store: int = 0) -> Driver:
    return Driver(FakeModel(slots=slots, context=cells, pool=cells), store_budget=store)


def test_a_shared_prefix_counts_once() -> None:
    pool = CellPool(100)
    pool.record([Copy(0, 1, 20)])
    assert pool.used({0: 30, 1: 25}) == 35
    assert pool.used({1: 25}) == 25


def test_prefixes_of_several_lengths_are_shared() -> None:
    pool = CellPool(100)
    pool.record([Copy(0, 1, 20), Copy(0, 2, 12), Copy(1, 3, 25)])
    assert pool.used({0: 30, 1: 30, 2: 30, 3: 30}) == 30 + 10 + 18 + 5
    pool.record([Removal(0, 15)])
    assert pool.used({0: 15, 1: 30}) == 30
    assert pool.used({0: 15, 2: 30, 3: 30}) == 30 + 18


def test_dropped_and_restored_cells_are_no_longer_shared() -> None:
    pool = CellPool(100)
    pool.record([Copy(0, 1, 20), Copy(0, 2, 20), Removal(1, 0), Restore(7, 2, 20)])
    assert pool.used({0: 20, 1: 20, 2: 20}) == 60


def test_one_sequence_may_use_what_the_other_slots_leave() -> None:
    driver = pooled(512)
    key = driver.serve("a" * 480, max_tokens=30)
    assert len(driver.text(key)) == 30
    assert driver.scheduler.metrics().preempted == 0


def test_cached_cells_of_other_slots_make_room() -> None:
    driver = pooled(512)
    for letter in "abcd":
        driver.serve(letter * 100, max_tokens=1)
    assert driver.ledger.cached_tokens == 400
    driver.serve("e" * 450, max_tokens=4)
    assert driver.scheduler.metrics().preempted == 0
    assert driver.ledger.cached_tokens <= 512


def test_cells_of_a_cancelled_sequence_count_until_they_are_dropped() -> None:
    driver = pooled(512)
    key = driver.add("x" * 50, max_tokens=50)
    driver.step()
    counts = [driver.scheduler.metrics().active_tokens]
    driver.cancel(key)
    counts.append(driver.scheduler.metrics().active_tokens)
    driver.step()
    counts.append(driver.scheduler.metrics().active_tokens)
    assert counts == [50, 50, 0]


def test_a_prefix_stays_as_long_as_all_cells_suffice() -> None:
    driver = pooled(200)
    driver.serve("x" * 120, max_tokens=1)
    assert driver.ledger.make_room(80)
    assert driver.ledger.cached_tokens == 120
    assert driver.ledger.make_room(81)
    assert driver.ledger.cached_tokens == 0


def test_the_least_recently_used_prefix_goes_first() -> None:
    driver = pooled(512, slots=5)
    for letter in "abcd":
        driver.serve(letter * 100, max_tokens=1)
    driver.serve("e" * 150, max_tokens=1)
    assert sorted(slot.cached[0] for slot in driver.ledger.slots if slot.cached) == [ord(letter) for letter in "bcde"]


def test_a_request_waits_for_cells_although_a_slot_is_free() -> None:
    driver = pooled(512)
    first, second = driver.add("a" * 300, max_tokens=20), driver.add("b" * 300, max_tokens=20)
    driver.step()
    assert (driver.ledger.held, driver.ledger.free) == (1, 3)
    driver.drain()
    assert len(driver.text(first)) == len(driver.text(second)) == 20
    assert driver.scheduler.metrics().preempted == 0


def test_requests_with_a_common_prefix_need_its_cells_once() -> None:
    driver = pooled(512)
    prefix = "a" * 300
    driver.serve(prefix, max_tokens=1)
    for letter in "bcde":
        driver.add(prefix + letter * 10, max_tokens=8)
    driver.step()
    assert driver.ledger.held == 4
    driver.drain()
    assert driver.scheduler.metrics().preempted == 0
    assert driver.run.cache.copied == 0


def test_the_youngest_gives_way_when_sequences_grow_beyond_the_pool() -> None:
    driver = pooled(512, store=10**6)
    keys = [driver.add(letter * 100, max_tokens=200) for letter in "abcd"]
    driver.drain()
    assert all(len(driver.text(key)) == 200 for key in keys)
    metrics = driver.scheduler.metrics()
    assert metrics.preempted > 0
    assert metrics.restored_tokens > 0


def test_a_sequence_may_fill_the_whole_pool() -> None:
    driver = pooled(512)
    key = driver.serve("a" * 500, max_tokens=12)
    assert len(driver.text(key)) == 12
    assert not isinstance(driver.last(key), Failed)


@pytest.mark.parametrize("can_trim", [True, False])
def test_models_that_cannot_trim_share_whole_prefixes(can_trim: bool) -> None:
    driver = Driver(FakeModel(slots=4, context=512, pool=512, can_trim=can_trim))
    first = driver.serve("a" * 200, max_tokens=0)
    assert first in driver.news
    for letter in "bc":
        driver.add("a" * 200 + letter, max_tokens=8)
    driver.drain()
    assert driver.scheduler.metrics().preempted == 0
