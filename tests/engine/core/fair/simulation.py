"""Slots that compute one token a step for each running request, and a queue in turns among clients."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.core.fair.turns import FairTurns


@dataclass(eq=False)
class Job:
    """A request: waiting item and running work in one."""

    client: str
    tokens: int
    weight: float = 1.0
    priority: int = 0
    arrives: int = 0
    estimate: int | None = None
    charged: int = 0
    work: int = 0
    started_at: int | None = None

    @property
    def cost(self) -> int:
        return self.tokens if self.estimate is None else self.estimate

    @property
    def wait(self) -> int:
        assert self.started_at is not None
        return self.started_at - self.arrives


@dataclass
class Simulation:
    """A number of slots. Without `fair` all requests are those of one client, so that they run in order of arrival."""

    slots: int
    fair: bool = True
    now: int = 0
    computed: Counter[str] = field(default_factory=Counter)
    running: list[Job] = field(default_factory=list)
    waiting: set[Job] = field(default_factory=set)
    turns: FairTurns[Job, Job] = field(default_factory=FairTurns)

    def add(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            job.arrives = self.now
            if not self.fair:
                job.client, job.weight = "", 1.0
            self.waiting.add(job)
            self.turns.add(job)

    def step(self) -> None:
        while len(self.running) < self.slots and (job := self.turns.take()):
            self.turns.begin(job, job, job.cost)
            job.started_at = self.now
            self.waiting.remove(job)
            self.running.append(job)
        self.now += 1
        for job in self.running:
            job.work += 1
            self.computed[job.client] += 1
        for job in [job for job in self.running if job.work >= job.tokens]:
            self.end(job)

    def end(self, job: Job) -> None:
        """End a running job, or cancel it."""
        self.running.remove(job)
        self.turns.end(job)

    def drain(self, limit: int = 100_000) -> None:
        for _ in range(limit):
            if not (self.waiting or self.running):
                return
            self.step()
        raise AssertionError("a request starves")


def p99(waits: Iterable[int]) -> int:
    ordered = sorted(waits)
    return ordered[len(ordered) * 99 // 100]
