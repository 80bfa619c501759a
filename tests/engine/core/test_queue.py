"""The queue in the scheduler: turns among clients, and the ranks of requests."""

import random

import pytest

from engine.core.fair.turns import QUANTUM
from engine.errors import Busy
from engine.events import Finished, Released, Started
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver


def started(driver: Driver, key: int) -> bool:
    return Started() in driver.news.get(key, [])


def starts(driver: Driver, keys: list[int]) -> list[int]:
    """Run until all requests have started; return the number of steps that each waited."""
    waits: dict[int, int] = {}
    for step in range(100_000):
        waits |= {key: step for key in keys if key not in waits and started(driver, key)}
        if len(waits) == len(keys):
            return [waits[key] for key in keys]
        driver.step()
    raise AssertionError("a request starves")


def until_preempted(driver: Driver, times: int) -> None:
    while driver.scheduler.metrics().preempted < times:
        driver.step()


def waits_beside_a_greedy_client(clients: list[str]) -> list[int]:
    driver = Driver(FakeModel(slots=8), queue_limit=2000)
    for _ in range(300):
        driver.add("greedy", max_tokens=10, client="greedy", cache_prompt=False)
    driver.step()
    return starts(driver, [driver.add("other", max_tokens=10, client=client, cache_prompt=False) for client in clients])


def test_other_clients_hardly_wait_for_one_with_many_requests() -> None:
    fair = waits_beside_a_greedy_client([f"other {n}" for n in range(20)])
    first_come = waits_beside_a_greedy_client(["greedy"] * 20)
    assert max(fair) < min(first_come) / 5


def test_freed_slots_go_to_the_client_with_the_smallest_share() -> None:
    driver = Driver(FakeModel(slots=32), queue_limit=200)
    rng = random.Random(1)
    held = [driver.add("job", max_tokens=rng.randint(20, 60), client="background") for _ in range(66)]
    for _ in range(30):
        driver.step()
    late = [driver.add("chat", max_tokens=30, client="chat") for _ in range(16)]
    before = sum(started(driver, key) for key in held)
    waits = starts(driver, late[:8])
    assert max(waits) < 60
    assert sum(started(driver, key) for key in held) == before, "all freed slots went to the chat"
    driver.drain()


def test_weights_divide_the_tokens() -> None:
    driver = Driver(FakeModel(slots=4), queue_limit=2000)
    weights = {"one": 1.0, "two": 2.0, "four": 4.0}
    for client, weight in weights.items():
        for _ in range(100):
            driver.add("x" * 20, max_tokens=30, client=client, weight=weight, cache_prompt=False)
    clients = {key: client for at, client in enumerate(weights) for key in range(100 * at + 1, 100 * at + 101)}
    for _ in range(1000):
        driver.step()
    done = dict.fromkeys(weights, 0)
    for key, news in driver.news.items():
        done[clients[key]] += 50 * sum(isinstance(event, Finished) for event in news)
    total = sum(done.values())
    assert total > 3000
    for client, weight in weights.items():
        assert abs(done[client] - total * weight / 7) < QUANTUM + 4 * 50, done


def test_choices_gain_nothing_over_requests() -> None:
    driver = Driver(FakeModel(slots=4), queue_limit=2000)
    many = [driver.add("x", n=8, max_tokens=20, client="choices", cache_prompt=False) for _ in range(10)]
    single = [driver.add("x", max_tokens=20, client="requests", cache_prompt=False) for _ in range(80)]
    while not all(started(driver, key) for key in single):
        driver.step()
    ended = sum(isinstance(event, Finished) for key in many for event in driver.news.get(key, []))
    assert ended <= 80
    driver.drain()


def test_priorities_order_the_requests_of_one_client_and_delay_no_other() -> None:
    driver = Driver(FakeModel(slots=1))
    driver.add("runs", max_tokens=200, client="a")
    driver.step()
    late, early = (driver.add("x", max_tokens=5, client="a", priority=priority) for priority in (7, -7))
    other = driver.add("x", max_tokens=5, client="b", priority=1000)
    waits = starts(driver, [late, early, other])
    assert waits[2] < waits[1] < waits[0]


def test_a_reused_prompt_costs_its_client_nothing() -> None:
    driver = Driver(FakeModel(slots=1, context=4096))
    charged = []
    for _ in range(2):
        driver.add("p" * 3000, max_tokens=100)
        driver.step()
        (chunk,) = driver.plans[-1].chunks
        charged.append(chunk.sequence.charged)
        driver.drain()
        charged.append(chunk.sequence.charged)
    assert charged == [3100, 3099, 101, 100], "the last token is never computed, nor is it reused"


def test_a_cancelled_request_costs_only_what_was_computed() -> None:
    driver = Driver(FakeModel(slots=1, context=4096))
    dear = driver.add("d" * 2000, max_tokens=2000, client="a")
    driver.step()
    waiting = [driver.add("x", max_tokens=2, client=client) for client in ("b", "a", "b", "b")]
    driver.cancel(dear)
    assert driver.scheduler.metrics().waiting == 4
    waits = starts(driver, waiting)
    assert waits[1] < waits[3]
    driver.drain()


def test_a_client_that_always_leaves_during_its_first_step_pays_for_it() -> None:
    driver = Driver(FakeModel(slots=1, context=4096))
    hasty = [driver.add("h" * 200, client="hasty")]
    others = [driver.add("o" * 200, max_tokens=100, client="other") for _ in range(2)]

    def leave() -> None:
        if started(driver, hasty[0]):
            driver.cancel(hasty.pop(0))
            driver.run.abort()

    for _ in range(300):
        hasty.append(driver.add("h" * 200, client="hasty"))
        driver.step(leave)
    assert all(started(driver, key) for key in others)


def test_a_preempted_request_keeps_its_place_at_the_head() -> None:
    model = FakeModel(slots=2)
    driver = Driver(model, FakeRunner(model, capacity=40))
    first = driver.add("first one", max_tokens=25, cache_prompt=False, client="a")
    second = driver.add("second one", max_tokens=25, cache_prompt=False, client="a")
    driver.step()
    others = [driver.add("other", max_tokens=3, cache_prompt=False, client="b", priority=-1) for _ in range(3)]
    while driver.scheduler.metrics().held == 2:
        driver.step()
    assert next(driver.scheduler.queue()) == second
    driver.finish(second)
    assert isinstance(driver.last(first), Finished)
    driver.drain()
    assert all(isinstance(driver.last(key), Finished) for key in others)


def test_preempted_requests_start_again_in_the_order_in_which_they_came() -> None:
    model = FakeModel(slots=3)
    driver = Driver(model, FakeRunner(model, capacity=60))
    first, *others = (driver.add(letter * 10, max_tokens=38, cache_prompt=False) for letter in "abc")
    until_preempted(driver, 2)
    assert list(driver.scheduler.queue()) == others
    driver.finish(first)
    driver.step()
    assert [chr(chunk.sequence.tokens[0]) for chunk in driver.plans[-1].chunks] == ["b", "c"]
    driver.drain()


def test_a_request_that_was_preempted_and_cancelled_leaves_the_queue() -> None:
    """Of its three choices one has never had a slot, and one has lost it."""
    model = FakeModel(slots=2)
    driver = Driver(model, FakeRunner(model, capacity=40), queue_limit=9)
    gone = driver.add("gone", n=3, max_tokens=50, cache_prompt=False, client="a")
    until_preempted(driver, 1)
    assert driver.scheduler.metrics().waiting == 2
    driver.cancel(gone)
    assert driver.scheduler.metrics().waiting == 0
    keys = [driver.add("again", max_tokens=1, client="a") for _ in range(9 + 2 - 1)]
    with pytest.raises(Busy):
        driver.add("too many", client="a")
    driver.drain()
    assert all(isinstance(driver.last(key), Finished) for key in keys)


def test_a_request_takes_one_place_however_many_of_its_choices_are_preempted() -> None:
    model = FakeModel(slots=3)
    driver = Driver(model, FakeRunner(model, capacity=30), queue_limit=9)
    driver.add("many", n=3, max_tokens=20, cache_prompt=False, client="a")
    until_preempted(driver, 2)
    assert driver.scheduler.metrics().waiting == 2
    driver.drain()
    for _ in range(9 + 3 - 1):
        driver.add("again", max_tokens=1, client="a")
    with pytest.raises(Busy):
        driver.add("too many", client="a")
    driver.drain()


def test_a_choice_that_gave_way_goes_on_beside_the_others_of_its_request() -> None:
    driver = Driver(FakeModel(slots=2))
    many = driver.add("many", n=2, max_tokens=50, client="a")
    driver.step()
    other = driver.add("other", max_tokens=2, client="b")
    driver.finish(other)
    driver.step()
    assert (driver.scheduler.metrics().held, driver.scheduler.metrics().waiting) == (2, 0)
    assert not any(isinstance(event, Finished) for event in driver.news[many])
    driver.drain()


def test_requests_of_a_client_share_the_slots_for_their_further_choices() -> None:
    driver = Driver(FakeModel(slots=6))
    for letter in "ab":
        driver.add(letter, n=5, max_tokens=9)
    driver.step()
    assert sorted(slot.holder.tokens[0] for slot in driver.ledger.slots if slot.holder) == [*b"aaabbb"]
    driver.drain()


def test_the_choice_with_the_fewest_cells_gives_way() -> None:
    driver = Driver(FakeModel(slots=3))
    driver.add("a" * 50, "b" * 20, "c" * 30, max_tokens=50, client="a")
    while driver.scheduler.metrics().generated_tokens < 9:
        driver.step()
    driver.add("other", max_tokens=50, client="b")
    while len(driver.compute().chunks) != 3:
        pass
    assert [chr(chunk.sequence.tokens[0]) for chunk in driver.plans[-1].chunks] == ["a", "o", "c"]
    driver.drain()


def test_a_cancelled_request_gives_its_place_in_the_queue_back() -> None:
    driver = Driver(FakeModel(slots=1), queue_limit=1)
    runs = driver.add("runs")
    driver.step()
    for _ in range(3):
        driver.cancel(driver.add("waits"))
    waits = driver.add("waits")
    with pytest.raises(Busy):
        driver.add("too many")
    driver.drain()
    assert [type(driver.last(key)) for key in (runs, waits)] == [Finished, Finished]


def test_a_request_that_is_preempted_and_resumed_takes_one_place() -> None:
    """Of its two choices one is put back, and the other ends before the first has a slot again."""
    model = FakeModel(slots=3)
    driver = Driver(model, FakeRunner(model, capacity=36), queue_limit=9)
    driver.add("old", max_tokens=25, cache_prompt=False, client="a")
    driver.serve("young", n=2, max_tokens=12, cache_prompt=False, client="b")
    for _ in range(9 + 3 - 1):
        driver.add("again", max_tokens=1, client="b")
    with pytest.raises(Busy):
        driver.add("too many", client="b")
    driver.drain()


def test_a_waiting_request_is_released_at_once() -> None:
    driver = Driver(FakeModel(slots=1))
    driver.add("runs", client="a")
    driver.step()
    keys = [driver.add("waits", client=client) for client in ("a", "b", "a")]
    for key in keys:
        driver.cancel(key)
        assert driver.last(key) == Released("queued", 0, 0)
    assert list(driver.scheduler.queue()) == []
    driver.drain()


def test_the_order_is_that_in_which_requests_start() -> None:
    driver = Driver(FakeModel(slots=1, context=4096))
    driver.add("runs", max_tokens=5, client="a")
    driver.step()
    rng = random.Random(2)
    keys = [
        driver.add("x" * rng.randint(1, 900), max_tokens=2, client=rng.choice("abc"), priority=rng.randint(0, 1))
        for _ in range(12)
    ]
    expected = list(driver.scheduler.queue())
    assert sorted(expected) == keys
    waits = starts(driver, keys)
    first = [keys[waits.index(wait)] for wait in sorted(waits)]
    assert first[:3] == expected[:3], "later ones move, because the costs were estimates"
