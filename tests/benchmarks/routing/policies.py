"""The compared policies. Each chooses a replica for a request, and learns of its end and of reports."""

from bisect import bisect
from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import ceil, inf
from random import Random
from typing import Protocol

from typing_extensions import override

from gateway.routing.report import Report
from gateway.routing.router import LINGER, LoadBound, PrefixRouter, Routed
from tests.benchmarks.routing.replica import Job


class Policy(Protocol):
    """A router. It has a number of replicas, from 0."""

    reads_prefixes: bool
    """True if it uses the prefixes in reports."""

    def choose(self, job: Job, blocks: Sequence[int], now: float) -> int:
        """Return the replica for a request, which counts there from now on."""

    def end(self, job: Job, replica: int, now: float) -> None:
        """Record the end of a request."""

    def receive(self, replica: int, requests: int, report: Report) -> None:
        """Take over a report, which comes with the number of requests."""


class _Counting(Policy):
    """Counts the requests of each replica: its own ones, and those of others in the latest report."""

    reads_prefixes = False

    def __init__(self, replicas: int, random: Random) -> None:
        self.random = random
        self.open = [0] * replicas
        self.others = [0] * replicas

    def load(self, replica: int) -> int:
        return self.open[replica] + self.others[replica]

    def pick(self, job: Job, blocks: Sequence[int]) -> int:
        raise NotImplementedError

    @override
    def choose(self, job: Job, blocks: Sequence[int], now: float) -> int:
        replica = self.pick(job, blocks)
        self.open[replica] += 1
        return replica

    @override
    def end(self, job: Job, replica: int, now: float) -> None:
        self.open[replica] -= 1

    @override
    def receive(self, replica: int, requests: int, report: Report) -> None:
        self.others[replica] = max(requests - self.open[replica], 0)


class RoundRobin(_Counting):
    """One replica after another."""

    _next = -1

    @override
    def pick(self, job: Job, blocks: Sequence[int]) -> int:
        self._next = (self._next + 1) % len(self.open)
        return self._next


class LeastLoaded(_Counting):
    """The replica with the fewest requests; a random one of equal ones."""

    @override
    def pick(self, job: Job, blocks: Sequence[int]) -> int:
        loads = list(map(self.load, range(len(self.open))))
        least = min(loads)
        return self.random.choice([replica for replica, load in enumerate(loads) if load == least])


class TwoChoices(_Counting):
    """The replica with fewer requests of two random ones."""

    @override
    def pick(self, job: Job, blocks: Sequence[int]) -> int:
        return min(self.random.sample(range(len(self.open)), 2), key=self.load)


class BoundedHashing(_Counting):
    """Consistent hashing of the conversation with bounded loads: the next replica on the ring with room."""

    POINTS = 100
    FACTOR = 1.25

    def __init__(self, replicas: int, random: Random) -> None:
        super().__init__(replicas, random)
        points = [(_hash(f"{replica}/{point}"), replica) for replica in range(replicas) for point in range(self.POINTS)]
        self._ring = sorted(points)

    @override
    def pick(self, job: Job, blocks: Sequence[int]) -> int:
        total = sum(self.open) + sum(self.others) + 1
        most = ceil(self.FACTOR * total / len(self.open))
        at = bisect(self._ring, (_hash(f"conversation {job.wanted.conversation.id}"), 0))
        while True:
            _, replica = self._ring[at % len(self._ring)]
            if self.load(replica) < most:
                return replica
            at += 1


class RayPrefixTree(_Counting):
    """The rules of Ray's PrefixCacheAffinityRouter. Its tree gets every routed prompt, and loses nothing.

    If the longest and the shortest queue differ by more than `imbalanced`, the less busy of two. Else the replicas that
    were sent the longest part of the prompt, if that is a tenth of it; else those with the smallest trees. Of these the
    one with the shortest queue.
    """

    MATCH_RATE = 0.1

    def __init__(self, replicas: int, random: Random, imbalanced: float) -> None:
        super().__init__(replicas, random)
        self._imbalanced = imbalanced
        self._sent: dict[int, set[int]] = {}
        self._sizes = [0] * replicas

    @override
    def pick(self, job: Job, blocks: Sequence[int]) -> int:
        loads = list(map(self.load, range(len(self.open))))
        replica = self._pick(blocks, loads)
        for block in blocks:
            tenants = self._sent.setdefault(block, set())
            self._sizes[replica] += replica not in tenants
            tenants.add(replica)
        return replica

    def _pick(self, blocks: Sequence[int], loads: list[int]) -> int:
        if max(loads) - min(loads) > self._imbalanced:
            return min(self.random.sample(range(len(loads)), 2), key=loads.__getitem__)
        matched = 0
        while matched < len(blocks) and blocks[matched] in self._sent:
            matched += 1
        if matched and matched >= self.MATCH_RATE * len(blocks):
            chosen = list(self._sent[blocks[matched - 1]])
        else:
            least = min(self._sizes)
            chosen = [replica for replica, size in enumerate(self._sizes) if size == least]
        self.random.shuffle(chosen)
        return min(chosen, key=loads.__getitem__)


class Prefixes(Policy):
    """The router of this project."""

    reads_prefixes = True

    def __init__(self, replicas: int, slots: int, random: Random, bound: LoadBound, linger: float) -> None:
        self._router = PrefixRouter[int](random, bound, linger)
        self._router.update_replicas(dict.fromkeys(range(replicas), slots))
        self._routed: dict[Job, Routed[int]] = {}

    @override
    def choose(self, job: Job, blocks: Sequence[int], now: float) -> int:
        routed = self._routed[job] = self._router.route(blocks, now)
        return routed.replica

    @override
    def end(self, job: Job, replica: int, now: float) -> None:
        self._router.end(self._routed.pop(job), now)

    @override
    def receive(self, replica: int, requests: int, report: Report) -> None:
        self._router.count(replica, requests)
        self._router.receive(replica, report)


Make = Callable[[int, int, Random], Policy]
"""Makes a policy for a number of replicas with a number of slots."""


def prefixes(bound: LoadBound = LoadBound(), linger: float = LINGER) -> Make:  # noqa: B008 - it is frozen
    """Return the router of this project."""
    return lambda replicas, slots, random: Prefixes(replicas, slots, random, bound, linger)


POLICIES: dict[str, Make] = {
    "round robin": lambda replicas, _slots, random: RoundRobin(replicas, random),
    "least loaded": lambda replicas, _slots, random: LeastLoaded(replicas, random),
    "two choices": lambda replicas, _slots, random: TwoChoices(replicas, random),
    "bounded hashing": lambda replicas, _slots, random: BoundedHashing(replicas, random),
    "Ray's, threshold 10": lambda replicas, _slots, random: RayPrefixTree(replicas, random, 10),
    "Ray's, no threshold": lambda replicas, _slots, random: RayPrefixTree(replicas, random, inf),
    "prefixes": prefixes(),
}


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
