"""Group 6, a dip in throughput: 289 tokens/s at 16 clients, 257 at 24, 348 at 32.

Each sequence has a cache of its own, so llama.cpp cuts a step into runs of neighbouring `seq_id`s with equally many
tokens, and makes a weight pass for each. The tests count weight passes; they do not time them.
"""

import random
from itertools import pairwise
from statistics import fmean

import pytest

from engine.events import Finished, Released
from engine.testing.fake_model import FakeModel
from tests.engine.driver import Driver
from tests.repeat import TIMES, repeated, thorough

SLOTS = 32
CLIENTS = (1, 8, 16, 24, 32)
SEEDS = range(min(TIMES, 2))
ANSWERS = 80
WALK = 850
"""Cells per weight pass of a model of 0.6B weights at 4 bits."""


def walks(chunks: list[tuple[int, int]]) -> int:
    """Return the weight passes of one step, from the `seq_id` and the number of tokens of each of its chunks."""
    return 1 + sum(b[0] != a[0] + 1 or b[1] != a[1] for a, b in pairwise(chunks))


class Crowd:
    """Clients that send their next request as soon as they have an answer."""

    def __init__(self, seed: int, *, cache: bool) -> None:
        self.driver = Driver(FakeModel(slots=SLOTS, context=4096, cells_per_weight_pass=WALK), store_budget=10**6)
        self.waiting: set[int] = set()
        self._random = random.Random(seed)
        self._cache = cache

    def ask(self) -> None:
        prompt = "".join(self._random.choices("abc", k=self._random.randint(2, 40)))
        key = self.driver.add(prompt, max_tokens=self._random.randint(30, 100), cache_prompt=self._cache)
        self.waiting.add(key)

    def leave(self) -> None:
        key = self._random.choice(sorted(self.waiting))
        self.waiting.remove(key)
        self.driver.cancel(key)

    def come_and_go(self, chance: random.Random) -> None:
        """Add one client with a short request, then step, and cancel some requests, until there is room."""
        self.waiting.add(self.driver.add(chr(chance.randrange(97, 123)), max_tokens=chance.randint(1, 9)))
        while len(self.waiting) > chance.randrange(SLOTS):
            self.step()
            if self.waiting and chance.random() < 0.1:
                self.leave()

    def step(self) -> int:
        """Run one step; return the number of answered clients."""
        self.driver.step()
        answered = {key for key in self.waiting if self._ended(key)}
        self.waiting -= answered
        return len(answered)

    def decodes(self) -> list[int]:
        """Return the weight passes of each decode step."""
        passes = zip(self.driver.run.passes, self.driver.plans, strict=True)
        return [walks(chunks) for chunks, plan in passes if plan.decode]

    def _ended(self, key: int) -> bool:
        return key in self.driver.news and isinstance(self.driver.last(key), Finished | Released)


def walks_for_each_token(clients: int, seed: int, *, cache: bool) -> float:
    crowd = Crowd(seed, cache=cache)
    for _ in range(clients):
        crowd.ask()
    answered = 0
    while answered < ANSWERS:
        just_now = crowd.step()
        answered += just_now
        for _ in range(just_now):
            crowd.ask()
    return sum(map(walks, crowd.driver.run.passes)) / crowd.driver.scheduler.metrics().rows_decoded


@thorough
@pytest.mark.parametrize("cache", [True, False], ids=["prefixes reused", "nothing kept"])
@pytest.mark.parametrize("seed", SEEDS)
def test_more_clients_never_need_more_weight_passes_per_token(seed: int, cache: bool) -> None:
    needed = [walks_for_each_token(clients, seed, cache=cache) for clients in CLIENTS]
    assert needed == sorted(needed, reverse=True)


@thorough
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most", [8, 16, 24, 32])
def test_rows_are_neighbours_while_clients_come_and_go(most: int, seed: int) -> None:
    crowd = Crowd(seed, cache=True)
    chance = random.Random(seed)
    for _ in range(500):
        if len(crowd.waiting) < most and chance.random() < 0.5:
            crowd.ask()
        if crowd.waiting and chance.random() < 0.05:
            crowd.leave()
        crowd.step()
    assert fmean(crowd.decodes()) < 1.05, "at random places it would be 6 to 8"


@repeated
def test_rows_are_neighbours_after_a_thousand_of_arrivals_and_departures() -> None:
    crowd = Crowd(0, cache=True)
    chance = random.Random(0)
    for _ in range(1_000 * TIMES):
        crowd.come_and_go(chance)
    while len(crowd.waiting) < 24:
        crowd.ask()
    before = len(crowd.decodes())
    for _ in range(60):
        crowd.step()
    after = crowd.decodes()[before:]
    assert after == [1] * len(after)


def test_the_remaining_sequences_become_neighbours_at_once() -> None:
    driver = Driver(FakeModel(slots=SLOTS, context=4096, cells_per_weight_pass=WALK))
    keys = [driver.add("stays", max_tokens=1000) for _ in range(SLOTS)]
    driver.step()
    while any(slot.state != "decode" for slot in driver.scheduler.inspect()):
        driver.step()
    for key in keys[::2]:
        driver.cancel(key)
    driver.step()
    assert walks(driver.run.passes[-1]) == 1


def decode_all(driver: Driver) -> None:
    """Step until every slot has been in a decode step."""
    while not (driver.plans and driver.plans[-1].decode and len(driver.plans[-1].chunks) == len(driver.ledger.slots)):
        driver.step()


@pytest.mark.parametrize("left", [[1, 3, 5], [0, 4, 6], [2, 7]], ids=str)
def test_simultaneous_prompts_share_a_weight_pass_in_any_free_slots(left: list[int]) -> None:
    driver = Driver(FakeModel(slots=8, context=4096, cells_per_weight_pass=WALK))
    keys = [driver.add("stays", max_tokens=1000) for _ in range(8)]
    decode_all(driver)
    for at in left:
        driver.cancel(keys[at])
    for letter in "abc"[: len(left)]:
        driver.add(letter * 20, max_tokens=10)
    plans = [driver.step(), driver.step()]
    assert [plan.decode for plan in plans if plan] == [False, True]
    assert [walks(chunks) for chunks in driver.run.passes[-2:]] == [1, 1]


def test_a_prompt_does_not_move_for_a_cheaper_weight_pass() -> None:
    driver = Driver(FakeModel(slots=3, context=4096, cells_per_weight_pass=WALK))
    keys = [driver.add(letter * 1000, max_tokens=1000) for letter in "abc"]
    decode_all(driver)
    before = driver.run.cache.copied
    for key in (keys[0], keys[2]):
        driver.cancel(key)
    for letter in "de":
        driver.add(letter * 20, max_tokens=1)
    driver.step()
    assert not driver.plans[-1].decode
    assert walks(driver.run.passes[-1]) == 2
    assert driver.run.cache.copied == before


def test_long_prompts_have_weight_passes_of_their_own_and_do_not_move_back_and_forth() -> None:
    driver = Driver(FakeModel(slots=12, context=4096, cells_per_weight_pass=WALK))
    driver.add("a", max_tokens=1000)
    driver.step()
    for letter in "bcdefghijk":
        driver.add(letter * 3000, max_tokens=1)
    for _ in range(200):
        driver.step()
    passes = [chunks for chunks, plan in zip(driver.run.passes, driver.plans, strict=True) if not plan.decode]
    assert set(map(len, passes)) == {1}
    assert driver.run.cache.copied < WALK
