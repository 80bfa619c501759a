"""The threads of a step, on simulated machines: no clock, so a second is what the machine says."""

import logging
import random
from collections.abc import Callable
from statistics import mean

import pytest

from engine.llama.cpu.step_threads import StepThreads, ladder

Machine = Callable[[int], float]
"""Seconds of a step by its threads."""


class Run:
    """Steps of one size on a machine that may change. Its other processes leave so many cores free."""

    def __init__(self, most: int, rows: int = 1, *, cores: float = 0) -> None:
        self.numbers = ladder(most)
        self.cores = cores
        self.threads = StepThreads(single=self.numbers, several=self.numbers)
        self.rows = rows
        self.used: list[int] = []

    def steps(self, machine: Machine, seconds: float) -> float:
        """Run steps for some time. Return their number, relative to a constant number of threads that is best."""
        left, count = seconds, 0
        while left > 0:
            number = self.threads.of(self.rows).threads
            took = machine(number)
            self.threads.of(self.rows).observe(self.rows, took, took * min(number, self.cores))
            self.used.append(number)
            left -= took
            count += 1
        return count / (seconds / min(map(machine, self.numbers)))


def scaling(step: float) -> Machine:
    """Return a machine on which every thread has a core of its own."""
    return lambda threads: step / threads


def spinning(step: float) -> Machine:
    """Return a machine with another process on each core; threads that wait for each other take 20 times as long."""
    return lambda threads: 2 * step if threads == 1 else 40 * step / threads


def bandwidth(step: float, limit: int) -> Machine:
    """Return a machine with memory for so many threads; each further one costs a little."""
    return lambda threads: step / min(threads, limit) * (1 + 0.05 * max(0, threads - limit))


def test_the_ladder_has_all_cores_and_fewer() -> None:
    assert ladder(1) == (1,)
    assert ladder(2) == (1, 2)
    assert ladder(8) == (1, 2, 3, 4, 6, 7, 8)
    assert ladder(64)[-3:] == (48, 63, 64)


@pytest.mark.parametrize("step", [0.004, 0.03, 0.3])
@pytest.mark.parametrize("cores", [1, 2, 8])
@pytest.mark.parametrize("rows", [1, 8, 256])
def test_a_quiet_machine_keeps_all_threads_and_loses_less_than_3_percent(step: float, cores: int, rows: int) -> None:
    run = Run(cores, rows)
    run.steps(scaling(step), 20)
    assert run.steps(scaling(step), 60) > 0.97
    assert run.threads.of(rows).threads == cores


@pytest.mark.parametrize("step", [0.004, 0.03, 0.3])
@pytest.mark.parametrize("rows", [1, 8])
def test_threads_that_wait_for_each_other_are_given_up_at_the_start(step: float, rows: int) -> None:
    run = Run(2, rows)
    run.steps(spinning(step), 60 * step + 2)
    assert run.steps(spinning(step), 60) > 0.9
    assert run.used.count(2) <= max(3, len(run.used) / 50)


def test_a_start_beside_other_work_is_soon_made_up_for() -> None:
    run = Run(2)
    run.steps(lambda threads: 0.019 if threads == 1 else 0.022, 2)
    assert run.used[-1] == 1
    run.steps(lambda threads: 0.02 if threads == 1 else 0.018, 5)
    assert run.used[-1] == 2


def share_of_two(seed: int, cores: int) -> float:
    """Return the share of the steps with two threads, where these are a tenth faster and steps scatter."""
    chance = random.Random(seed)
    run = Run(2, cores=cores)
    run.steps(lambda threads: (0.02 if threads == 1 else 0.018) * chance.choice((0.9, 0.9, 0.9, 1.5)), 60)
    return run.used.count(2) / len(run.used)


@pytest.mark.parametrize("seed", range(8))
def test_a_tenth_is_seen_in_steps_that_scatter(seed: int) -> None:
    assert share_of_two(seed, cores=2) > 0.97


def test_a_tenth_is_mostly_seen_where_threads_lack_cores() -> None:
    shares = [share_of_two(seed, cores=0) for seed in range(40)]
    assert sum(share > 0.85 for share in shares) >= 38
    assert mean(shares) > 0.92


def test_threads_with_a_core_each_are_tried_with_fewer_seldom() -> None:
    run = Run(2, cores=1.75)  # other threads of the program need cores, too
    run.steps(scaling(0.02), 60)
    assert run.used.index(1) >= 200, "the program has started"
    assert run.used.count(1) < 20


def test_fewer_threads_are_found_faster_where_each_has_a_core() -> None:
    run = Run(8, cores=8)
    run.steps(bandwidth(0.05, 2), 60)
    assert run.used[-1] == 2


def test_the_slow_step_that_is_the_reason_for_a_trial_does_not_count_in_it() -> None:
    run = Run(2)
    times = iter([0.4])
    run.steps(lambda threads: next(times, 0.02 if threads == 1 else 0.018), 5)
    assert run.used[-1] == 2
    assert run.used.count(1) < 60


def test_a_neighbour_comes_and_goes() -> None:
    run = Run(2)
    run.steps(scaling(0.001), 60)
    run.used.clear()
    run.steps(spinning(0.001), 3)
    assert run.used[-1] == 1
    assert run.used.count(2) < 500, "most of them are the steps that it took to notice"
    run.steps(scaling(0.001), 10)
    assert run.used[-1] == 2


def test_a_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    run = Run(2, rows=8)
    run.steps(spinning(0.001), 3)
    assert [(record.getMessage(), record.__dict__["rows"]) for record in caplog.records] == [
        ("threads of a step: 1", 8)
    ]


@pytest.mark.parametrize("limit", [1, 4, 16])
def test_the_fastest_number_is_found_among_many(limit: int) -> None:
    run = Run(64)
    machine = bandwidth(0.05, limit)
    run.steps(machine, 30)
    assert run.steps(machine, 300) > 0.9
    assert run.threads.of(1).threads == limit


@pytest.mark.parametrize("seed", range(5))
def test_noise_costs_little(seed: int) -> None:
    chance = random.Random(seed)

    def noise() -> float:
        return chance.uniform(1, 20) if chance.random() < 0.05 else 1.0

    run = Run(2)
    plain = scaling(0.001)
    left, count, factors = 40.0, 0, 0.0
    while left > 0:
        factor = noise()
        took = plain(run.threads.of(1).threads) * factor
        run.threads.of(1).observe(1, took, 0.0)
        left -= took
        count += 1
        factors += factor
    best = 40.0 / (plain(2) * factors / count)
    assert count / best > 0.8


def test_sizes_are_measured_apart() -> None:
    threads = StepThreads(single=ladder(2), several=ladder(2))
    for _ in range(5000):
        for rows, machine in ((1, spinning(0.001)), (256, scaling(0.1))):
            tuner = threads.of(rows)
            tuner.observe(rows, machine(tuner.threads), 0.0)
    assert (threads.of(1).threads, threads.of(256).threads) == (1, 2)


def test_larger_steps_are_not_tried_with_fewer_threads_than_smaller_ones_need() -> None:
    threads = StepThreads(single=ladder(2), several=ladder(2))
    used = set()
    for _ in range(2000):
        for rows, step in ((8, 0.1), (64, 0.5)):
            number = threads.of(rows).threads
            threads.of(rows).observe(rows, scaling(step)(number), 0.0)
            if rows == 64:
                used.add(number)
    assert used == {2}


def test_larger_steps_follow_when_smaller_ones_need_fewer_threads() -> None:
    threads = StepThreads(single=ladder(2), several=ladder(2))
    used = []
    for machine in (scaling, spinning):
        for _ in range(500):
            for rows, step in ((8, 0.01), (64, 0.05)):
                number = threads.of(rows).threads
                threads.of(rows).observe(rows, machine(step)(number), 0.0)
                used.append(number)
    assert (threads.of(8).threads, threads.of(64).threads) == (1, 1)
    assert used[-200:].count(1) == 200


def test_a_number_of_the_operator_is_fixed() -> None:
    threads = StepThreads(single=(2,), several=(3,))
    for _ in range(1000):
        for rows, number in ((1, 2), (7, 3)):
            assert threads.of(rows).threads == number
            threads.of(rows).observe(rows, 1.0, 0.0)
