"""Shared prefixes are computed once, counted in tokens computed and cells copied."""

import random

from engine.core.kv.ledger import COPIED_AT_ONCE
from engine.events import Finished, Released
from engine.testing.fake_model import FakeModel
from tests.engine.driver import Driver

PREFIX = "".join(random.Random(1).choices("abcdefgh", k=512))


def computed(driver: Driver) -> int:
    metrics = driver.scheduler.metrics()
    return metrics.prompt_tokens + metrics.rows_decoded


def test_requests_that_come_at_once_share_one_computation_of_their_prefix() -> None:
    driver = Driver(FakeModel(slots=16, context=1024))
    endings = [f"{i:02}" * 8 for i in range(32)]
    keys = [driver.add(PREFIX + ending, max_tokens=1) for ending in endings]
    driver.drain()
    assert computed(driver) <= 1.1 * (len(PREFIX) + sum(map(len, endings)))
    for key, ending in zip(keys, endings, strict=True):
        lone = Driver(FakeModel(slots=1, context=1024))
        alone = lone.serve(PREFIX + ending, max_tokens=1)
        assert driver.text(key) == lone.text(alone)


def test_the_choices_of_one_prompt_compute_it_once() -> None:
    driver = Driver(FakeModel(slots=8, context=1024))
    key = driver.serve(PREFIX, n=8, max_tokens=1)
    assert computed(driver) == len(PREFIX) + 7
    cached = [event.cached for event in driver.news[key] if isinstance(event, Finished)]
    assert sorted(cached) == [0, *[len(PREFIX) - 1] * 7]


def test_more_choices_than_slots_compute_their_prompt_once() -> None:
    driver = Driver(FakeModel(slots=2, context=1024))
    driver.serve(PREFIX, n=8, max_tokens=1)
    assert computed(driver) == len(PREFIX) + 7


def test_the_next_turn_of_a_conversation_computes_only_new_tokens() -> None:
    driver = Driver(FakeModel(slots=2, context=2048))
    first = driver.serve(PREFIX, max_tokens=20)
    said = driver.text(first)
    before = computed(driver)
    driver.serve(PREFIX + said + "and now?", max_tokens=1)
    assert computed(driver) - before == len("and now?") + 1


def test_two_conversations_in_turn_do_not_evict_each_other() -> None:
    driver = Driver(FakeModel(slots=2, context=2048))
    texts = [PREFIX, PREFIX[::-1]]
    for turn in range(5):
        for at in range(2):
            before = computed(driver)
            key = driver.serve(texts[at], max_tokens=4)
            assert turn == 0 or computed(driver) - before <= 8 + 4
            texts[at] += driver.text(key) + "more"


def test_a_prefix_in_use_by_a_running_neighbour_is_copied() -> None:
    driver = Driver(FakeModel(slots=2, context=2048))
    driver.add(PREFIX, max_tokens=500)
    for _ in range(3):
        driver.step()
    before = driver.scheduler.metrics().prompt_tokens
    key = driver.add(PREFIX + "xyz", max_tokens=1)
    driver.finish(key)
    assert driver.scheduler.metrics().prompt_tokens - before == 3
    assert driver.run.cache.copied == len(PREFIX)


def test_a_cancelled_computation_of_a_shared_prefix_is_continued_by_another_sequence() -> None:
    driver = Driver(FakeModel(slots=4, context=2048))
    driver.add("neighbour", max_tokens=2000)
    driver.step()
    keys = [driver.add(PREFIX + str(i), max_tokens=1) for i in range(3)]
    for _ in range(4):
        driver.step()
    driver.cancel(keys[0])
    before = computed(driver)
    steps = driver.scheduler.metrics().rows_decoded
    while any(not isinstance(driver.last(key), Finished) for key in keys[1:]):
        driver.step()
    rows = driver.scheduler.metrics().rows_decoded - steps
    assert isinstance(driver.last(keys[0]), Released)
    assert computed(driver) - before - rows <= len(PREFIX) + 2


def test_a_prefix_is_taken_from_a_leader_that_ended_before_its_slot_is_given_away() -> None:
    driver = Driver(FakeModel(slots=2, context=1024))
    driver.add(PREFIX, n=2, max_tokens=1)
    driver.serve("another", max_tokens=1)
    assert driver.run.cache.copied == len(PREFIX) - 1


def test_no_sequence_waits_for_a_prefix_where_parts_cannot_be_reused() -> None:
    driver = Driver(FakeModel(slots=3, context=1024, can_trim=False))
    driver.add(PREFIX[:20], n=3, max_tokens=1)
    plan = driver.compute()
    assert len(plan.chunks) == 3
    driver.drain()


def test_copies_are_spread_over_passes() -> None:
    driver = Driver(FakeModel(slots=16, context=8192))
    long = PREFIX * 8
    driver.add(long, n=16, max_tokens=1)
    copied = []
    while driver.scheduler.busy:
        before = driver.run.cache.copied
        driver.step()
        copied.append(driver.run.cache.copied - before)
    assert max(copied) <= COPIED_AT_ONCE + len(long)
    assert sum(copied) == 15 * (len(long) - 1)


def test_requests_without_prompt_cache_share_no_cells() -> None:
    driver = Driver(FakeModel(slots=4, context=1024))
    for _ in range(3):
        driver.add(PREFIX, max_tokens=1, cache_prompt=False)
    driver.drain()
    assert computed(driver) == 3 * len(PREFIX)
    assert driver.run.cache.copied == 0
    assert driver.scheduler.metrics().cached_tokens == 0


def test_a_model_whose_sequences_cannot_be_cut_still_answers_rightly() -> None:
    texts = {}
    for can_trim in (True, False):
        driver = Driver(FakeModel(slots=3, context=2048, can_trim=can_trim))
        keys = [driver.add(PREFIX[: 100 * i + 50], max_tokens=5) for i in range(5)]
        driver.drain()
        texts[can_trim] = [driver.text(key) for key in keys]
    assert texts[True] == texts[False]


def test_closing_a_gap_keeps_the_moved_sequence_running() -> None:
    driver = Driver(FakeModel(slots=4, context=1024))
    keys = [driver.add(f"prompt {i}", max_tokens=60) for i in range(4)]
    for _ in range(3):
        driver.step()
    driver.cancel(keys[1])
    plan = driver.compute()
    assert [chunk.seq_id for chunk in plan.chunks] == [0, 1, 2]
    driver.drain()
    for i in (0, 2, 3):
        lone = Driver(FakeModel(slots=1, context=1024))
        key = lone.serve(f"prompt {i}", max_tokens=60)
        assert driver.text(keys[i]) == lone.text(key)
