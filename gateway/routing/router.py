"""Choice of the replica for a request: the longest held prefix under a load bound, else the less busy of two."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic

from gateway.routing.blocks import Blocks
from gateway.routing.index import HolderIndex, ReplicaT
from gateway.routing.report import Report
from gateway.routing.view import ReplicaView


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBound:
    """Load up to which a replica gets requests because of what it holds. The load is its requests for each slot."""

    free: float = 1.0
    """Load that is allowed whatever the others have. At 1 all slots are in use, and the next request waits."""
    ratio: float = 2.0
    """Allowed load for each load of the average replica."""

    def limit(self, mean: float) -> float:
        """Return the allowed load beside a mean load of all replicas."""
        return max(self.free, self.ratio * mean)


LINGER = 10.0
"""Seconds after a request's end for which its prompt counts as held, unless a report of its replica says so anyway.
Reports that are later than that make the router forget prompts for a while."""


@dataclass(frozen=True, slots=True, eq=False)
class Routed(Generic[ReplicaT]):
    """A request that a replica has."""

    replica: ReplicaT
    """The replica."""
    held: int
    """Blocks of its prompt that the replica held."""
    blocks: Blocks
    """All blocks of its prompt."""
    view: ReplicaView
    """The router's view of the replica."""


class PrefixRouter(Generic[ReplicaT]):
    """Routes requests to replicas that come and go. Not thread-safe; times are seconds of any clock.

    A routed request counts at once: for the load of its replica, and as if its prompt were held there, so that the next
    turn of a conversation finds it before the replica has reported it.
    """

    def __init__(self, random: Random, bound: LoadBound | None = None, linger: float = LINGER) -> None:
        """Create a router without replicas."""
        self._random = random
        self._bound = bound or LoadBound()
        self._linger = linger
        self._views: dict[ReplicaT, ReplicaView] = {}
        self._order: list[ReplicaT] = []
        self._index = HolderIndex[ReplicaT]()
        self._ended: deque[tuple[float, Routed[ReplicaT]]] = deque()
        self._slots = self._requests = 0

    @property
    def replicas(self) -> Collection[ReplicaT]:
        """All replicas."""
        return self._views.keys()

    def update_replicas(self, slots: dict[ReplicaT, int]) -> None:
        """Replace the replicas. Each has a number of slots. Those that stay keep what is known of them."""
        for replica in self._views.keys() - slots.keys():
            self.remove(replica)
        for replica, number in slots.items():
            if replica not in self._views:
                self._views[replica] = ReplicaView(number)
                self._order.append(replica)
                self._slots += number

    def remove(self, replica: ReplicaT) -> None:
        """Forget a replica that has left or died."""
        view = self._views.pop(replica, None)
        if view is not None:
            self._order.remove(replica)
            self._slots -= view.slots
            self._requests -= view.requests
            self._index.remove(replica, view.blocks())

    def route(self, blocks: Blocks, now: float, *, without: Collection[ReplicaT] = ()) -> Routed[ReplicaT]:
        """Choose the replica for a request, and count it there until `end`.

        Args:
            blocks: the blocks of its prompt.
            now: the time.
            without: replicas that cannot take it.

        Raises:
            LookupError: there is no other replica.
        """
        self.expire(now)
        replica, held = self._choose(blocks, without)
        return self._begin(replica, held, blocks)

    def move(self, routed: Routed[ReplicaT], replica: ReplicaT) -> Routed[ReplicaT]:
        """Return a request that another replica than the chosen one has taken, counted there."""
        if replica == routed.replica or replica not in self._views:
            return routed
        self._leave(routed)
        self._forget(routed)
        held = next((length for length, holders in self._index.longest(routed.blocks) if replica in holders), 0)
        return self._begin(replica, held, routed.blocks)

    def end(self, routed: Routed[ReplicaT], now: float) -> None:
        """Record the end of a request, whatever it was."""
        self._leave(routed)
        self._ended.append((now + self._linger, routed))
        self.expire(now)

    def count(self, replica: ReplicaT, requests: int) -> None:
        """Record how many requests a replica has, those of other routers included."""
        if view := self._views.get(replica):
            self.count_others(replica, requests - view.open)

    def count_others(self, replica: ReplicaT, requests: int) -> None:
        """Record how many requests of other routers a replica has, if it counts those of each router."""
        if view := self._views.get(replica):
            self._requests -= view.others
            view.others = max(requests, 0)
            self._requests += view.others

    def receive(self, replica: ReplicaT, report: Report) -> bool:
        """Take over a report. Return False if it cannot be, because it begins after the latest known state.

        Then the replica should be asked for a report since `known`.
        """
        view = self._views.get(replica)
        if view is None:
            return True
        changes = view.apply(report)
        if changes is None:
            return False
        new, gone = changes
        self._index.add(replica, new)
        self._index.remove(replica, gone)
        return True

    def known(self, replica: ReplicaT) -> tuple[int, int]:
        """Return the epoch and the sequence number of the latest report of a replica."""
        view = self._views[replica]
        return view.epoch, view.sequence

    def expire(self, now: float) -> None:
        """Forget the prompts of requests that ended long enough ago. `route` and `end` do it, too."""
        while self._ended and self._ended[0][0] <= now:
            self._forget(self._ended.popleft()[1])

    def held(self, replica: ReplicaT) -> int:
        """Return the number of blocks that a replica holds."""
        return len(self._views[replica].blocks())

    def holders(self, block: int) -> Sequence[ReplicaT]:
        """Return the replicas that hold a block."""
        return self._index.holders(block)

    def _choose(self, blocks: Blocks, without: Collection[ReplicaT]) -> tuple[ReplicaT, int]:
        limit = self._bound.limit(self._requests / max(self._slots, 1))
        for held, holders in self._index.longest(blocks):
            replica = self._less_busy(holders, without)
            if replica is not None and self._views[replica].busy < limit:
                return replica, held
        replica = self._less_busy(self._order, without)
        if replica is None:
            raise LookupError("there is no replica for the request")
        return replica, 0

    def _less_busy(self, replicas: Sequence[ReplicaT], without: Collection[ReplicaT]) -> ReplicaT | None:
        """Return the less busy of two random ones."""
        able = [one for one in replicas if one not in without] if without else replicas
        two = self._random.sample(able, min(len(able), 2))
        return min(two, key=lambda replica: self._views[replica].busy, default=None)

    def _begin(self, replica: ReplicaT, held: int, blocks: Blocks) -> Routed[ReplicaT]:
        view = self._views[replica]
        view.open += 1
        self._requests += 1
        self._index.add(replica, view.expect(blocks))
        return Routed(replica, held, blocks, view)

    def _leave(self, routed: Routed[ReplicaT]) -> None:
        routed.view.open -= 1
        if self._knows(routed):
            self._requests -= 1

    def _forget(self, routed: Routed[ReplicaT]) -> None:
        gone: Iterable[int] = routed.view.expire(routed.blocks)
        if self._knows(routed):
            self._index.remove(routed.replica, gone)

    def _knows(self, routed: Routed[ReplicaT]) -> bool:
        """Return whether the replica of a request has not left since."""
        return self._views.get(routed.replica) is routed.view
