"""The discrete-event simulation of a cluster: arrivals, phases of requests, and reports."""

import heapq
from dataclasses import dataclass, field
from functools import cache
from itertools import count, islice
from random import Random
from statistics import mean

from gateway.routing.report import HeldBlocks, Report
from tests.benchmarks.routing.policies import Make, Policy
from tests.benchmarks.routing.replica import PREFILL, Job, Machine, Prefix, Replica, step_seconds
from tests.benchmarks.routing.workload import Conversation, Workload, conversations

_SAMPLE = 2000
"""Conversations from which the capacity is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster and its load."""

    replicas: int = 100
    """Number of replicas."""
    load: float = 0.9
    """Requests offered, as a share of those that the replicas could serve if each found all earlier turns cached."""
    machine: Machine = field(default_factory=Machine)
    """Each replica."""
    workload: Workload = field(default_factory=Workload)
    """The conversations."""
    routers: int = 1
    """Routers, each of which gets a part of the requests."""
    period: float = 0.5
    """Seconds between two reports of a replica."""
    delay: float = 0.0
    """Seconds from a report to the routers."""
    warm_up: float = 300.0
    """Seconds before the measurement."""
    seconds: float = 300.0
    """Seconds in which the measured requests arrive."""
    drain: float = 60.0
    """Seconds after them. A first token that has not come then counts as coming then."""
    seed: int = 1
    """Seed of everything."""


@dataclass(slots=True)
class Outcome:
    """Result of one run."""

    waits: list[float] = field(default_factory=list)
    """Seconds to the first token of each request that arrived in the measured time and was not refused."""
    refused: int = 0
    """Requests that found their replica's queue full."""
    prompt: int = 0
    """Prompt tokens of the requests."""
    reused: int = 0
    """Prompt tokens that were found cached when a request got its slot."""
    started: int = 0
    """Prompt tokens of the requests that got a slot."""
    imbalance: list[float] = field(default_factory=list)
    """Largest load of a replica, over the mean, once a second."""
    answered: int = 0
    """Tokens of the answers that ended in the measured time."""

    def quantile(self, share: float) -> float:
        """Return a quantile of the waits."""
        ordered = sorted(self.waits)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")

    def row(self) -> dict[str, float]:
        """Return the figures of a table."""
        return {
            "requests": len(self.waits) + self.refused,
            "refused": self.refused / max(len(self.waits) + self.refused, 1),
            "computed": 1 - self.reused / max(self.started, 1),
            "p50": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "mean": mean(self.waits) if self.waits else float("nan"),
            "imbalance": mean(self.imbalance) if self.imbalance else float("nan"),
            "answered": self.answered,
        }


@cache
def capacity(workload: Workload, slots: int) -> tuple[float, float]:
    """Return the requests per second of one replica, and the turns of the mean conversation.

    The replica has all its slots in use, and finds all earlier turns and every system prompt cached.
    """
    seconds = requests = 0.0
    for one in islice(conversations(workload, 1), _SAMPLE):
        known = one.shared
        for prompt, answer, _ in one.turns:
            seconds += (prompt - known) / PREFILL + answer * step_seconds(slots) / slots
            known = prompt + answer
            requests += 1
    return requests / seconds, requests / _SAMPLE


class Simulation:
    """One run."""

    def __init__(self, scenario: Scenario, make: Make) -> None:
        self._scenario = scenario
        random = Random(scenario.seed)
        self._arrivals = Random(scenario.seed + 1)
        self._replicas = [Replica(scenario.machine) for _ in range(scenario.replicas)]
        self._logs = [HeldBlocks(1) for _ in self._replicas]
        self._routers: list[Policy] = [
            make(scenario.replicas, scenario.machine.slots, Random(random.random())) for _ in range(scenario.routers)
        ]
        self._source = conversations(scenario.workload, scenario.seed)
        self._events: list[tuple[float, int, str, tuple[object, ...]]] = []
        self._order = count()
        self._planned = [float("inf")] * scenario.replicas
        self._measured = scenario.warm_up, scenario.warm_up + scenario.seconds
        self._open: dict[Job, int] = {}
        self.outcome = Outcome()
        requests, turns = capacity(scenario.workload, scenario.machine.slots)
        self._rate = scenario.load * scenario.replicas * requests / turns

    def run(self) -> Outcome:
        """Run to the end, and return the result."""
        scenario = self._scenario
        end = self._measured[1] + scenario.drain
        self._plan(self._arrivals.expovariate(self._rate), "arrive")
        self._plan(scenario.warm_up, "sample")
        for replica in range(scenario.replicas):
            self._plan(self._arrivals.random() * scenario.period, "report", replica)
        while self._events and self._events[0][0] <= end:
            now, _, kind, values = heapq.heappop(self._events)
            getattr(self, f"_{kind}")(now, *values)
        for job in self._open:
            if self._counts(job):
                self.outcome.waits.append((job.first or end) - job.arrived)
        return self.outcome

    def _plan(self, time: float, kind: str, *values: object) -> None:
        heapq.heappush(self._events, (time, next(self._order), kind, values))

    def _counts(self, job: Job) -> bool:
        return self._measured[0] <= job.arrived < self._measured[1]

    def _arrive(self, now: float) -> None:
        self._plan(now + self._arrivals.expovariate(self._rate), "arrive")
        self._ask(now, next(self._source), 0)

    def _ask(self, now: float, conversation: Conversation, turn: int) -> None:
        if turn >= len(conversation.turns):
            return
        prompt, answer, _ = conversation.turns[turn]
        job = Job(Prefix(conversation, prompt), answer, now, self._arrivals.randrange(len(self._routers)), turn)
        router = self._routers[job.router]
        chosen = router.choose(job, conversation.prompt_blocks(prompt), now)
        self._advance(chosen, now)
        accepted = self._replicas[chosen].add(job)
        if self._counts(job):
            self.outcome.prompt += prompt
            self.outcome.refused += not accepted
        if accepted:
            self._open[job] = chosen
            self._follow(chosen)
        else:
            router.end(job, chosen, now)

    def _change(self, now: float, replica: int) -> None:
        if self._planned[replica] == now:
            self._advance(replica, now)
            self._follow(replica)

    def _advance(self, at: int, now: float) -> None:
        for job in self._replicas[at].advance(now):
            del self._open[job]
            self._routers[job.router].end(job, at, now)
            self._record(job, now)
            conversation = job.wanted.conversation
            self._plan(now + conversation.turns[job.turn][2], "ask", conversation, job.turn + 1)

    def _record(self, job: Job, now: float) -> None:
        if self._counts(job) and job.first is not None:
            self.outcome.waits.append(job.first - job.arrived)
            self.outcome.reused += job.cached
            self.outcome.started += job.wanted.tokens
        if self._measured[0] <= now < self._measured[1]:
            self.outcome.answered += job.answer

    def _follow(self, at: int) -> None:
        """Plan the next change of a replica. An earlier plan for another time is void."""
        time = self._replicas[at].next_event
        if time != self._planned[at]:
            self._planned[at] = time
            if time < float("inf"):
                self._plan(time, "change", at)

    def _report(self, now: float, at: int) -> None:
        self._plan(now + self._scenario.period, "report", at)
        replica, log = self._replicas[at], self._logs[at]
        known = log.sequence
        if replica.changed:
            replica.changed = False
            if self._routers[0].reads_prefixes:
                log.update({block for one in replica.held() for block in one.conversation.prompt_blocks(one.tokens)})
            self._plan(now + self._scenario.delay, "receive", at, replica.requests, log.report(known))

    def _receive(self, _now: float, at: int, requests: int, report: Report) -> None:
        for router in self._routers:
            router.receive(at, requests, report)

    def _sample(self, now: float) -> None:
        if now < self._measured[1]:
            self._plan(now + 1, "sample")
            loads = [replica.requests for replica in self._replicas]
            self.outcome.imbalance.append(max(loads) / max(mean(loads), 1e-9))


def simulate(scenario: Scenario, make: Make) -> Outcome:
    """Run a scenario with a policy."""
    return Simulation(scenario, make).run()
