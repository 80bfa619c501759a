"""Prefixes that outlive their slots in host memory, counted in tokens computed, saved and restored."""

import itertools
import random
from dataclasses import replace

import pytest

from engine.core.kv.cell_changes import Removal, Restore
from engine.core.kv.ledger import COPIED_AT_ONCE, KVLedger
from engine.core.kv.prefix import Prefix
from engine.core.kv.prefix_file import file_for
from engine.core.kv.prefix_store import MIN_SPEED_OF_SAVES, WORTH_SAVING, PrefixStore
from engine.core.model import CELLS_PER_TOKEN
from engine.core.sequence import Sequence
from engine.events import Failed, Finished
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver, bytes_of, partial_bytes_of, request
from tests.repeat import first

ROOM = 10**6
PREFIX = "".join(random.Random(1).choices("abcdefgh", k=512))
STRANGERS = itertools.count(1000)


def other(number: int, length: int = 200) -> str:
    """Return a text with a beginning of its own."""
    return f"{number:04}"[::-1] + "".join(random.Random(number).choices("wxyz", k=length))


def driven(slots: int = 2, budget: int = ROOM, *, context: int = 2048, can_trim: bool = True) -> Driver:
    return Driver(FakeModel(slots=slots, context=context, can_trim=can_trim), store_budget=budget)


def ask(driver: Driver, *prompts: str, **fields: object) -> int:
    """Answer prompts one after another; return the number of tokens computed for them."""
    before = computed(driver)
    for prompt in prompts:
        driver.serve(prompt, **{"max_tokens": 1, **fields})
    return computed(driver) - before


def ask_at_once(driver: Driver, prompts: list[str]) -> int:
    """Answer prompts all at once; return the number of tokens computed for them."""
    before = computed(driver)
    for prompt in prompts:
        driver.add(prompt, max_tokens=1)
    driver.drain()
    return computed(driver) - before


def crowd_out(driver: Driver) -> None:
    """Overwrite every slot."""
    ask_at_once(driver, [other(next(STRANGERS)) for _ in driver.ledger.slots])
    assert not any(bytes(slot.cached).startswith(PREFIX[:9].encode()) for slot in driver.ledger.slots)


def computed(driver: Driver) -> int:
    metrics = driver.scheduler.metrics()
    return metrics.prompt_tokens + metrics.rows_decoded


def stored(driver: Driver) -> list[int]:
    """Return the sizes of the stored prefixes, without checkpoints, the least recently used first."""
    return [one.size for one in driver.store if not one.partial]


def test_the_next_turn_of_a_conversation_computes_only_new_tokens_after_its_slot_was_reused() -> None:
    driver = driven()
    text = PREFIX
    for turn in range(4):
        key = driver.add(text, max_tokens=WORTH_SAVING)
        before = computed(driver)
        driver.drain()
        known = len(PREFIX) if turn == 0 else len("and now?") + 1
        assert computed(driver) - before == known + WORTH_SAVING - 1
        crowd_out(driver)
        text += driver.text(key) + "and now?"
    assert driver.scheduler.metrics().restored_tokens == sum(
        len(PREFIX) + turn * (WORTH_SAVING + len("and now?")) + WORTH_SAVING - 1 for turn in range(3)
    )


def test_many_requests_over_one_prefix_compute_it_once_and_not_again_from_the_store() -> None:
    driver = driven(16)
    for round_ in range(2):
        endings = [f"{round_}{number:02}" * 6 for number in range(32)]
        bar = 1.1 * (len(PREFIX) + sum(map(len, endings)))
        assert ask_at_once(driver, [PREFIX + ending for ending in endings]) <= bar - round_ * len(PREFIX)
        crowd_out(driver)
        assert sum(bytes(tokens).startswith(PREFIX.encode()) for tokens in driver.run.cache.saved.values()) == 1


def test_a_longer_prefix_supersedes_its_own_prefixes() -> None:
    driver = driven(1)
    ask(driver, PREFIX, other(1), PREFIX + "x" * WORTH_SAVING, other(2))
    longer = len(PREFIX) + WORTH_SAVING
    assert stored(driver) == [204, longer]
    assert driver.scheduler.metrics().saved_tokens == 512 + 204 + longer


def test_a_prefix_cached_elsewhere_or_cheap_to_compute_is_not_saved() -> None:
    driver = driven(2)
    ask_at_once(driver, [PREFIX, other(1, WORTH_SAVING - 5)])
    ask_at_once(driver, [PREFIX + "x", other(2)])
    assert stored(driver) == [], "one was short, and the other was extended where it lay"


@pytest.mark.parametrize(("length", "saved"), [(WORTH_SAVING, [WORTH_SAVING]), (WORTH_SAVING - 1, [])])
def test_a_prefix_is_saved_from_some_tokens_on(length: int, saved: list[int]) -> None:
    driver = driven(1)
    ask(driver, PREFIX[:length], other(1))
    assert stored(driver) == saved


def test_a_removed_entry_is_not_waited_for() -> None:
    store = PrefixStore(ROOM, bytes_of)
    prefix = Prefix([1] * 400, 400, "")
    store.fetch(file_for(prefix, bytes_of(400)))
    assert store.reading
    store.forget_alike(prefix)
    assert not store.reading


def test_a_prefix_of_a_running_neighbour_is_not_saved() -> None:
    ledger = KVLedger(2, FakeModel().traits, PrefixStore(ROOM, bytes_of))
    running, ended = lease(ledger, [1] * 400), lease(ledger, [1] * 400)
    running.computed, ended.computed = 400 - WORTH_SAVING + 1, 400
    ledger.release(ended, keep=True)
    lease(ledger, [2] * 400)
    assert ledger.take_changes() == (Removal(1, 0),)
    assert not list(ledger.store)


def test_a_long_prefix_is_not_saved_again_for_a_few_more_tokens() -> None:
    driver = driven(1, context=2 * CELLS_PER_TOKEN * WORTH_SAVING)
    long = PREFIX * (CELLS_PER_TOKEN * WORTH_SAVING // len(PREFIX) + 1)
    much = len(long) // CELLS_PER_TOKEN
    ask(driver, long, other(1), long + "x" * (much - 1), other(2))
    assert stored(driver) == [204, len(long)]
    ask(driver, long + "y" * (2 * much), other(3))
    assert stored(driver)[-1] == len(long) + 2 * much


@pytest.mark.parametrize(("budget", "saved"), [(bytes_of(204), [204]), (bytes_of(204) - 1, [])])
def test_a_prefix_is_saved_if_the_budget_has_room_for_it_alone(budget: int, saved: list[int]) -> None:
    driver = driven(1, budget)
    ask(driver, other(1), other(2))
    assert stored(driver) == saved


def test_the_least_recently_used_prefix_goes_first_and_the_budget_holds() -> None:
    driver = driven(1, 3 * bytes_of(204))
    ask(driver, *(other(number) for number in range(4)))
    assert stored(driver) == [204] * 3
    assert ask(driver, other(0)) == 1, "what it replaced in its slot was saved, and no. 1 made room for that"
    assert ask(driver, other(2), other(3)) == 2
    assert ask(driver, other(1)) == 204
    assert ask(driver, PREFIX * 2) == 1024
    ask(driver, other(9))
    assert driver.store.bytes <= 3 * bytes_of(204)
    assert 1024 not in stored(driver), "what is larger than all room goes nowhere"


def test_a_store_of_no_bytes_stores_no_prefix() -> None:
    driver = driven(1, 0)
    ask(driver, PREFIX, other(1))
    assert ask(driver, PREFIX) == 512
    assert not driver.run.cache.saved


def test_a_cancelled_request_leaves_no_cells_and_its_restored_prefix_stays_stored() -> None:
    driver = driven(1)
    ask(driver, PREFIX, other(1))
    key = driver.add(PREFIX + other(2), max_tokens=20)
    driver.step()
    driver.step()
    driver.cancel(key)
    driver.drain()
    assert driver.scheduler.metrics().cached_tokens == 0
    assert stored(driver) == [204, 512]
    assert ask(driver, PREFIX + other(3)) == 204


def test_where_cells_cannot_be_trimmed_a_prefix_is_restored_as_a_whole_or_up_to_a_checkpoint() -> None:
    driver = driven(1, can_trim=False)
    ask(driver, PREFIX, other(1))
    assert ask(driver, PREFIX[:200]) == 200, "before the first checkpoint"
    assert ask(driver, PREFIX[:300]) == 300 - 256
    assert ask(driver, other(2), PREFIX + "xyz") == 204 + 3
    ask(driver, other(3))
    assert ask(driver, PREFIX + "abc") == 3, "the shorter one was not superseded"
    assert stored(driver).count(512) == 1


@pytest.mark.parametrize("slots", [1, 2])
def test_partitions_share_neither_slots_nor_the_store(slots: int) -> None:
    driver = driven(slots)
    for partition in ("a", "b", ""):
        assert ask(driver, PREFIX, cache_partition=partition) == 512
        assert ask(driver, PREFIX, cache_partition=partition) == 1
    crowd_out(driver)
    for partition in ("a", "b", ""):
        assert ask(driver, PREFIX, cache_partition=partition) == 1
    assert ask(driver, PREFIX, cache_partition="c") == 512


def test_partitions_do_not_wait_for_each_others_prompts() -> None:
    driver = driven(4)
    for partition in ("a", "b", "a", "b"):
        driver.add(PREFIX, max_tokens=1, cache_partition=partition)
    driver.drain()
    assert computed(driver) == 2 * (512 + 1)
    assert driver.run.cache.copied == 2 * 511


def test_a_private_prompt_is_not_stored() -> None:
    driver = driven(1)
    ask(driver, PREFIX, cache_prompt=False)
    ask(driver, other(1))
    assert stored(driver) == []
    ask(driver, other(2), PREFIX, other(3))
    assert ask(driver, PREFIX, cache_prompt=False) == 512


def test_a_prefix_without_memory_to_save_it_is_computed_again() -> None:
    driver = driven(1)
    driver.run.cache.room = 300
    ask(driver, PREFIX, other(1), PREFIX)
    assert stored(driver) == [204]
    assert driver.scheduler.metrics().saved_tokens == 204
    assert ask(driver, other(1)) == 1


def test_a_prefix_that_is_just_being_saved_is_waited_for() -> None:
    for room, computes in ((ROOM, 1), (0, 512)):
        driver = driven(2)
        driver.run.cache.room = room
        ask(driver, PREFIX, other(1))
        assert [slot.size for slot in driver.ledger.slots] == [512, 204]
        assert ask_at_once(driver, [other(2), PREFIX]) == 204 + computes
        assert [slot.size for slot in driver.ledger.slots] == [204, 512]


def test_saves_are_spread_over_passes_and_starve_no_request() -> None:
    driver = driven(16)
    ask_at_once(driver, [other(number, 1000) for number in range(16)])
    keys = [driver.add(other(number, 1000), max_tokens=1) for number in range(16, 32)]
    copied = []
    while driver.scheduler.busy:
        before = driver.run.cache.copied
        driver.step()
        copied.append(driver.run.cache.copied - before)
    assert max(copied) <= COPIED_AT_ONCE + 1004
    assert sum(map(len, driver.run.cache.saved.values())) == 16 * 1004
    assert all(isinstance(driver.last(key), Finished) for key in keys)


def test_a_prefix_evicted_for_cells_is_stored() -> None:
    model = FakeModel(slots=3, context=2048)
    driver = Driver(model, FakeRunner(model, capacity=800), store_budget=ROOM)
    ask(driver, PREFIX, other(1, 600))
    assert stored(driver) == [512]
    assert ask(driver, PREFIX + "!") == 1


class Crowd:
    """Random conversations of two partitions that go on, end or are private. The fake checks each cell."""

    def __init__(self, driver: Driver, seed: int) -> None:
        self._driver = driver
        self._random = random.Random(seed)
        self._texts = {at: "s" * self._random.choice([0, 150, 200]) + other(at, 40) for at in range(8)}
        self._open: dict[int, int] = {}

    def step(self) -> None:
        idle = [at for at in self._texts if at not in self._open.values()]
        if idle and self._random.random() < 0.4:
            self._ask(self._random.choice(idle))
        if self._open and self._random.random() < 0.05:
            key = self._random.choice(list(self._open))
            self._driver.cancel(key)
            del self._open[key]
        self._driver.step()
        for key, at in list(self._open.items()):
            if key in self._driver.news and isinstance(self._driver.last(key), Finished | Failed):
                self._texts[at] = (self._texts[at] + self._driver.text(key) + "more")[:420]
                del self._open[key]

    def _ask(self, at: int) -> None:
        shares = {"cache_prompt": self._random.random() < 0.9, "cache_partition": "ab"[at % 2]}
        key = self._driver.add(self._texts[at], max_tokens=self._random.randint(1, 60), **shares)
        self._open[key] = at


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("can_trim", [True, False])
@pytest.mark.parametrize(("room", "capacity"), [(10**6, None), (700, None), (10**6, 900)])
@pytest.mark.parametrize("budget", first(1, [bytes_of(420) + 8 * partial_bytes_of(0), 4 * bytes_of(300), 10**6]))
def test_random_conversations_have_right_cells_and_counted_bytes(
    budget: int, room: int, capacity: int | None, can_trim: bool, ahead: bool
) -> None:
    model = FakeModel(slots=3, context=512, can_trim=can_trim)
    driver = Driver(model, FakeRunner(model, capacity=capacity), store_budget=budget, ahead=ahead)
    driver.run.cache.room = room
    crowd = Crowd(driver, seed=budget + room)
    for _ in range(600):
        crowd.step()
    driver.drain()
    metrics = driver.scheduler.metrics()
    assert min(metrics.saved_tokens, metrics.restored_tokens) > 0
    assert (metrics.free, metrics.active_tokens) == (3, 0)
    assert not driver.run.open


def lease(ledger: KVLedger, tokens: list[int]) -> Sequence:
    leased = Sequence(request(), 0, tokens, 8)
    ledger.lease(leased)
    return leased


def test_the_longer_of_a_slots_and_a_stored_prefix_is_taken() -> None:
    ledger = KVLedger(1, FakeModel().traits, PrefixStore(ROOM, bytes_of))
    long, short = list(range(1000)), list(range(400))
    for tokens in (long, [1] * 200, short):
        one = lease(ledger, tokens)
        one.computed = len(tokens)
        ledger.release(one, keep=True)
    ledger.take_changes()
    again = lease(ledger, long)
    assert again.computed == 400
    assert ledger.copy_prefix(again)
    assert (again.computed, again.cached) == (999, 999)
    assert ledger.take_changes() == (Restore(1, 0, 999),)


@pytest.mark.parametrize(("room", "reused"), [(partial_bytes_of(100), 100), (0, 0)])
def test_the_checkpoint_of_a_slot_is_evicted_last_by_the_save_of_its_cells(room: int, reused: int) -> None:
    store = PrefixStore(bytes_of(300) + room, bytes_of, partial_bytes_of)
    ledger = KVLedger(2, FakeModel(can_trim=False).traits, store)
    ended, running = lease(ledger, list(range(300))), lease(ledger, [1] * 300)
    for one in (ended, running):
        one.computed = 100
        ledger.save_checkpoint(one)
    ended.computed = 300
    ledger.release(ended, keep=True)
    ledger.take_changes()
    assert lease(ledger, [*range(150), *[1] * 50]).computed == reused
    assert 300 in [one.size for one in store]


@pytest.mark.parametrize(("cells_per_token", "saved"), [(MIN_SPEED_OF_SAVES - 0.1, 0), (MIN_SPEED_OF_SAVES, 512)])
def test_nothing_is_saved_where_copies_are_slow(cells_per_token: float, saved: int) -> None:
    model = FakeModel(slots=1, context=2048)
    model.traits = replace(model.traits, cells_per_token=cells_per_token)
    driver = Driver(model, store_budget=ROOM)
    ask(driver, PREFIX, other(1))
    assert driver.store.saved == saved


@pytest.mark.parametrize(("cells_per_token", "computed_tokens"), [(64.0, 301), (2.0, 301), (0.9, 600)])
def test_a_prompt_does_not_wait_for_a_copy_that_takes_longer(cells_per_token: float, computed_tokens: int) -> None:
    model = FakeModel(slots=2)
    model.traits = replace(model.traits, cells_per_token=cells_per_token)
    driver = Driver(model)
    ask_at_once(driver, ["x" * 300, "x" * 300])
    assert computed(driver) == computed_tokens


def test_cells_that_will_be_reused_are_saved_even_if_copies_are_slow() -> None:
    ledger = KVLedger(1, replace(FakeModel().traits, cells_per_token=1), PrefixStore(ROOM, bytes_of))
    for returns in (False, True):
        one = lease(ledger, [int(returns)] * 400)
        one.computed = 400
        ledger.release(one, keep=True, returns=returns)
        ledger.vacate(ledger.slots[0])
        assert [stored.size for stored in ledger.store] == [400] * returns


def test_the_cells_of_a_preempted_sequence_are_saved_even_if_copies_are_slow() -> None:
    model = FakeModel(slots=2, context=1024, pool=1024)
    model.traits = replace(model.traits, cells_per_token=1)
    driver = Driver(model, FakeRunner(model), store_budget=ROOM)
    for letter in "xy":
        driver.add(letter * 400, max_tokens=200)
    driver.drain()
    assert driver.scheduler.metrics().preempted == 1
    assert driver.store.saved > 400


def test_a_prompt_waits_for_the_beginning_of_one_that_is_much_longer() -> None:
    driver = Driver(FakeModel(slots=2, context=20_000))
    ask_at_once(driver, ["x" * 200 + "y" * 15_000, "x" * 200 + "z" * 300])
    assert driver.scheduler.metrics().reused_prompt_tokens == 200
