"""Random arrivals, cancels, starts and ends: each taken item is the right one, and none is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.core.fair.turns import FairTurns
from tests.engine.core.fair.simulation import Job
from tests.repeat import TIMES, repeated

indexes = st.integers(0, 1000)


class Turns(RuleBasedStateMachine):
    """Clients of different weights, and a model of what waits and runs."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: FairTurns[Job, Job] = FairTurns()
        self.waiting: list[Job] = []
        self.running: list[Job] = []

    @rule(
        client=st.sampled_from("abcdefgh"),
        tokens=st.integers(1, 5000),
        estimate=st.integers(1, 5000),
        weight=st.sampled_from([0.25, 1.0, 1.0, 4.0]),
        priority=st.integers(-1, 1),
        times=st.integers(1, 3),
    )
    def add(self, client: str, tokens: int, estimate: int, weight: float, priority: int, times: int) -> None:
        for _ in range(times):
            job = Job(client, tokens, weight, priority, estimate=estimate)
            self.turns.add(job)
            self.waiting.append(job)

    @precondition(lambda self: self.waiting)
    @rule(index=indexes)
    def cancel(self, index: int) -> None:
        job = self.waiting.pop(index % len(self.waiting))
        assert self.turns.discard(job)
        assert not self.turns.discard(job)

    @rule()
    def start(self) -> None:
        first, rounds = self.turns.first, {job.client: self.turns.round_of(job.client) for job in self.waiting}
        job = self.turns.take()
        assert job is first
        if job is None:
            assert not self.waiting
            return
        assert rounds[job.client] == min(rounds.values())
        of_client = [one for one in self.waiting if one.client == job.client]
        assert job is min(of_client, key=lambda one: one.priority), "the first of the most urgent ones"
        self.turns.begin(job, job, job.cost)
        self.waiting.remove(job)
        self.running.append(job)

    @precondition(lambda self: self.running)
    @rule(index=indexes, tokens=st.integers(0, 5000))
    def compute(self, index: int, tokens: int) -> None:
        job = self.running[index % len(self.running)]
        job.work = min(job.tokens, job.work + tokens)

    @precondition(lambda self: self.running)
    @rule(index=indexes)
    def end(self, index: int) -> None:
        job = self.running.pop(index % len(self.running))
        self.turns.end(job)
        assert job.charged == job.work

    @precondition(lambda self: self.running)
    @rule(index=indexes)
    def preempt(self, index: int) -> None:
        job = self.running.pop(index % len(self.running))
        self.turns.end(job)
        self.turns.add(job)
        self.waiting.append(job)

    @invariant()
    def the_order_has_each_waiting_item_once(self) -> None:
        order = list(self.turns.order(lambda job: job.cost))
        assert len(order) == len(self.waiting)
        assert set(order) == set(self.waiting)
        assert next(iter(order), None) is self.turns.first

    @invariant()
    def only_clients_that_wait_or_run_have_an_account(self) -> None:
        assert set(self.turns._clients) == {job.client for job in (*self.waiting, *self.running)}

    def teardown(self) -> None:
        while self.waiting:
            self.start()
        while self.running:
            self.end(0)
        assert self.turns.take() is None


TestTurns = repeated(Turns.TestCase)
TestTurns.settings = settings(max_examples=20 * TIMES, stateful_step_count=40)
