"""Turns among clients: shares, waits, corrections and starvation, in simulations."""

import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.fair.turns import QUANTUM, FairTurns
from tests.engine.core.fair.simulation import Job, Simulation, p99


def names(turns: FairTurns[Job, Job]) -> list[str]:
    """Start everything that waits; return the clients in order."""
    started = []
    while job := turns.take():
        turns.begin(job, job, job.cost)
        started.append(job.client)
    return started


def waits_beside_a_greedy_client(*, fair: bool) -> list[int]:
    simulation = Simulation(slots=8, fair=fair)
    simulation.add(Job("greedy", 20) for _ in range(1000))
    simulation.step()
    others = [Job(f"other {n}", 20) for n in range(50)]
    simulation.add(others)
    simulation.drain()
    return [job.wait for job in others]


def test_one_client_with_many_requests_hardly_delays_others() -> None:
    fair, first_come = (p99(waits_beside_a_greedy_client(fair=fair)) for fair in (True, False))
    assert first_come > 2400, "1,000 requests of 20 tokens in 8 slots"
    assert fair <= 20 * (50 / 8 + 2), "those of the other clients, and what runs"


@pytest.mark.parametrize("seed", range(5))
def test_shares_of_tokens_are_those_of_the_weights(seed: int) -> None:
    rng, weights = random.Random(seed), {"one": 1.0, "two": 2.0, "four": 4.0}
    simulation = Simulation(slots=8)
    for client, weight in weights.items():
        largest = rng.choice([20, 100, 400])
        simulation.add(
            Job(client, rng.randint(1, largest), weight, estimate=rng.randint(1, 400)) for _ in range(40_000 // largest)
        )
    for _ in range(2000):
        simulation.step()
    assert {job.client for job in simulation.waiting} == set(weights), "all of them wait all the time"
    for client, weight in weights.items():
        expected = 2000 * 8 * weight / 7
        assert abs(simulation.computed[client] - expected) < QUANTUM * weight + 8 * 400, simulation.computed


def test_small_requests_gain_nothing_over_large_ones() -> None:
    simulation = Simulation(slots=4)
    simulation.add(Job("many", 10) for _ in range(2000))
    simulation.add(Job("few", 500) for _ in range(40))
    for _ in range(3000):
        simulation.step()
    assert simulation.computed["many"] == pytest.approx(simulation.computed["few"], abs=QUANTUM + 4 * 500)


def test_a_client_that_holds_all_slots_gets_the_freed_ones_last() -> None:
    simulation = Simulation(slots=32)
    rng = random.Random(1)
    simulation.add(Job("background", rng.randint(150, 250), estimate=200) for _ in range(66))
    for _ in range(100):
        simulation.step()
    late = [Job("late", 200) for _ in range(20)]
    simulation.add(late)
    while any(job.started_at is None for job in late[:8]):
        simulation.step()
    assert sum(job.client == "background" for job in simulation.running) == 24, "it got none of the first 8"
    simulation.drain()


def test_slots_that_others_did_not_want_cost_nothing_later() -> None:
    simulation = Simulation(slots=2)
    simulation.add(Job("early", 100) for _ in range(100))
    simulation.drain()
    simulation.add(Job("late", 100) for _ in range(10))
    simulation.add(Job("early", 100) for _ in range(10))
    for _ in range(500):
        simulation.step()
    assert simulation.computed["early"] - 10_000 == pytest.approx(simulation.computed["late"], abs=200)


def test_a_client_that_leaves_and_returns_has_no_new_share() -> None:
    """A client sends each request only when the last one has ended, beside one that always waits."""
    simulation = Simulation(slots=1)
    simulation.add(Job("waits", 600) for _ in range(100))
    simulation.add([Job("returns", 600)])
    for _ in range(12_000):
        simulation.step()
        if not any(job.client == "returns" for job in (*simulation.waiting, *simulation.running)):
            simulation.add([Job("returns", 600)])
    assert simulation.computed["returns"] <= simulation.computed["waits"] + 600 + QUANTUM


def test_a_client_is_charged_what_was_computed() -> None:
    turns: FairTurns[Job, Job] = FairTurns()
    cancelled, whole = Job("cancels", 5000), Job("finishes", 5000)
    later = [Job(name, 10) for name in ("finishes", "cancels", "watches")]
    for job in (cancelled, whole, *later):
        turns.add(job)
    for job in (cancelled, whole):
        assert turns.take() is job
        turns.begin(job, job, job.cost)
    cancelled.work, whole.work = 10, 5000
    turns.end(cancelled)
    turns.end(whole)
    assert names(turns) == ["watches", "cancels", "finishes"]


def test_a_longer_text_than_foreseen_counts_at_its_end() -> None:
    turns: FairTurns[Job, Job] = FairTurns()
    long = Job("long", 5000, estimate=10)
    for job in (long, Job("other", 10), Job("long", 10), Job("other", 3000), Job("other", 10)):
        turns.add(job)
    assert turns.take() is long
    turns.begin(long, long, long.cost)
    long.work = 5000
    turns.end(long)
    assert names(turns) == ["other", "other", "other", "long"]


def test_what_a_client_received_counts_also_after_it_has_gone_while_others_wait() -> None:
    turns: FairTurns[Job, Job] = FairTurns()
    long = Job("long", 5000)
    for job in (long, *(Job("other", 10) for _ in range(3))):
        turns.add(job)
    assert turns.take() is long
    turns.begin(long, long, long.cost)
    long.work = 5000
    turns.end(long)
    turns.add(Job("long", 10))
    assert names(turns) == ["other", "other", "other", "long"]


def test_priorities_order_the_requests_of_one_client_only() -> None:
    turns: FairTurns[Job, Job] = FairTurns()
    jobs = [Job("a", 10, priority=0), Job("a", 10, priority=-5), Job("a", 10, priority=-5), Job("b", 10, priority=99)]
    for job in jobs:
        turns.add(job)
    taken = [turns.take() for _ in jobs]
    assert [job and jobs.index(job) for job in taken] == [1, 3, 2, 0]


def test_a_client_in_debt_does_not_starve_beside_ever_new_ones() -> None:
    simulation, fresh = Simulation(slots=2), count()
    debts = [Job("debtor", 5000) for _ in range(4)]
    simulation.add(debts)
    simulation.step()
    for _ in range(40_000):
        if len(simulation.waiting) < 10:
            simulation.add([Job(f"new {next(fresh)}", 30)])
        simulation.step()
        if all(job.started_at is not None for job in debts):
            return
    raise AssertionError("the debtor starves")


@pytest.mark.parametrize("seed", range(4))
def test_a_lone_request_waits_for_a_bounded_time_whatever_the_others_do(seed: int) -> None:
    """Clients of any weight come, send up to 200 requests each, cancel some, and go."""
    rng, names = random.Random(seed), count()
    simulation, probes, clients = Simulation(slots=4), list[Job](), 12
    for _ in range(3000):
        if len({job.client for job in simulation.waiting}) < clients and rng.random() < 0.2:
            name, weight, size = f"{next(names) % 40}", rng.choice([0.5, 1.0, 4.0]), rng.choice([1, 5, 200])
            simulation.add(Job(name, rng.randint(1, 200), weight, estimate=rng.randint(1, 400)) for _ in range(size))
        if simulation.running and rng.random() < 0.1:
            simulation.end(rng.choice(simulation.running))
        if rng.random() < 0.02:
            probes.append(Job(f"probe {len(probes)}", 10))
            simulation.add(probes[-1:])
        simulation.step()
    assert len(simulation.waiting) > 500, "more requests wait than a first-come queue could serve in time"
    assert max(job.wait for job in probes if job.started_at is not None) < (clients + 5) * (QUANTUM + 400) / 4
    assert sum(job.started_at is None for job in probes) < 20


def test_a_client_begins_at_the_level_of_those_that_wait_by_their_latest_weights() -> None:
    turns: FairTurns[Job, Job] = FairTurns()
    running = Job("ahead", 1000)
    turns.add(running)
    turns.take()
    turns.begin(running, running, running.cost)
    turns.add(Job("behind", 1))
    running.work = running.tokens
    waiting = [Job("ahead", 1), Job("ahead", 1, weight=3.0)]
    for job in waiting:
        turns.add(job)
    turns.add(Job("new", 1))
    assert turns.round_of("behind") == 0
    assert turns.round_of("new") == 750 // QUANTUM
    for job in waiting:
        turns.discard(job)
    turns.add(Job("newer", 1))
    assert turns.round_of("newer") == 750 // QUANTUM, "the level never decreases"


def test_a_weight_out_of_bounds_starves_no_client() -> None:
    for weight in (0.0, float("nan"), float("inf"), -1.0):
        simulation = Simulation(slots=1)
        odd, usual = Job("odd", 5, weight), Job("usual", 5)
        simulation.add(Job("odd", 5, weight) for _ in range(400))
        simulation.add([odd, usual])
        simulation.drain()
        assert usual.started_at is not None


WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5}
jobs_of_three = st.lists(
    st.builds(
        lambda client, tokens, priority: Job(client, tokens, WEIGHTS[client], priority),
        st.sampled_from("abc"),
        st.integers(1, 3000),
        st.integers(-1, 1),
    ),
    max_size=30,
)


@given(jobs_of_three, st.integers(0, 5))
def test_the_order_is_that_of_the_starts(jobs: list[Job], started: int) -> None:
    turns: FairTurns[Job, Job] = FairTurns()
    for job in jobs:
        turns.add(job)
    for _ in range(started):
        if first := turns.take():
            turns.begin(first, first, first.cost)
    expected = list(turns.order(lambda job: job.cost))
    taken = []
    while next_job := turns.take():
        turns.begin(next_job, next_job, next_job.cost)
        taken.append(next_job)
    assert taken == expected


def test_clients_of_one_round_come_in_the_order_in_which_they_reached_it() -> None:
    turns: FairTurns[Job, Job] = FairTurns()
    for job in (Job("far", QUANTUM + 2), Job("near", QUANTUM + 1), Job("far", 1), Job("near", 1)):
        turns.add(job)
    expected = [job.client for job in turns.order(lambda job: job.cost)]
    assert names(turns) == expected == ["far", "near", "far", "near"]
