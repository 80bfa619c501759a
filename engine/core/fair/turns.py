"""Deficit round robin by tokens among clients.

Shreedhar and Varghese, "Efficient fair queueing using deficit round robin", 1995. In each round a client may spend a
quantum of tokens, times its weight. Three things differ here:

- The cost of a request is known only at its end. So a client may overspend; the excess counts in its next rounds
  (surplus round robin; Adiseshu, Parulkar and Varghese, 1996). A start is charged an estimate, which is replaced by the
  tokens that were computed when the sequence leaves its slot, and those of a step that still runs.
- A client is kept under the round in which it is due, and rounds in which no client is due are skipped. So no operation
  visits all clients.
- A request holds its slot for long. So what a client was charged and has not received yet counts against it when
  another client begins to wait: see `FairTurns._level`.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from engine.core.fair.keyed_heap import KeyedHeap

QUANTUM = 128
"""Tokens that a client of weight 1 may spend in a round. Clients take turns, one request each, as long as the
difference between them is less."""
LEAST_WEIGHT, MOST_WEIGHT = 1 / 1024, 1024.0
"""Bounds of a weight, so that no client starves."""
MOST_GONE = 1024
"""Clients without requests that are remembered because they received more than those that wait."""


class Item(Protocol):
    """A request that waits."""

    @property
    def client(self) -> str:
        """Client that shares the queue with others."""

    @property
    def weight(self) -> float:
        """Share of the client, relative to that of others."""

    @property
    def priority(self) -> int:
        """Requests of one client with lower values come first."""


class Work(Protocol):
    """Work that a client is charged for: a sequence, or a text to embed."""

    charged: int
    """Number of tokens that its client was charged."""

    @property
    def work(self) -> int:
        """Number of tokens that were computed for it."""


ItemT = TypeVar("ItemT", bound=Item)
WorkT = TypeVar("WorkT", bound=Work)


@dataclass(slots=True, eq=False)
class _Client(Generic[ItemT]):
    """Account of one client."""

    name: str
    """Name of the client."""
    used: float
    """Tokens charged, divided by the weight, on a scale that all clients share."""
    weight: float
    """Weight of its latest request."""
    running: int = 0
    """Number of its running works."""
    waiting: KeyedHeap[ItemT] = field(default_factory=KeyedHeap)
    """Its waiting items by priority."""
    due: int = 0
    """Round in which it is due. Valid while it waits."""


class FairTurns(Generic[ItemT, WorkT]):
    """Waiting items in turns among clients, and what running ones have cost.

    A client that waits is served after a bounded number of requests of the others: only its own requests change the
    round in which it is due, each start moves another client to a later round, and clients that begin to wait approach
    that round from below. Only clients that wait or run have an account, and at most `MOST_GONE` others.
    """

    def __init__(self) -> None:
        self._clients: dict[str, _Client[ItemT]] = {}
        self._gone: OrderedDict[str, float] = OrderedDict()
        self._due: KeyedHeap[_Client[ItemT]] = KeyedHeap()
        self._running: dict[WorkT, _Client[ItemT]] = {}
        self._reached = 0.0
        self._waiting_used = 0.0
        self._waiting_weight = 0.0

    @property
    def first(self) -> ItemT | None:
        """The item that `take` returns next; unset if no item waits."""
        client = self._due.first
        return None if client is None else client.waiting.first

    def round_of(self, client: str) -> int:
        """Return the round in which a client that runs or waits is due."""
        return _round(self._clients[client].used)

    def add(self, item: ItemT) -> None:
        """Append an item to those of its client and of its priority."""
        client = self._account(item)
        self._set_weight(client, _bounded(item.weight))
        if client.waiting:
            client.waiting.put(item, item.priority)
            return
        owed = self._owed()
        client.used = max(client.used, self._level(owed) + owed.get(client, 0) / client.weight)
        client.waiting.put(item, item.priority)
        self._waiting_weight += client.weight
        self._waiting_used += client.weight * client.used
        self._place(client)

    def discard(self, item: ItemT) -> bool:
        """Remove an item. Return False if it does not wait."""
        client = self._clients.get(item.client)
        if client is None or not client.waiting.discard(item):
            return False
        if not client.waiting:
            self._stop_waiting(client)
            self._forget(client)
        return True

    def take(self, *, again: bool = False) -> ItemT | None:
        """Remove and return the next item; None if no item waits. `begin` must follow.

        With `again` it waits on, behind the other items of its client and of its priority.
        """
        client = self._due.first
        item = None if client is None else client.waiting.first
        if client is None or item is None:
            return None
        client.waiting.discard(item)
        if again:
            client.waiting.put(item, item.priority)
        if client.waiting:
            self._place(client)
        else:
            self._stop_waiting(client)
        return item

    def begin(self, item: ItemT, work: WorkT, tokens: int) -> None:
        """Charge the client of an item for a work that starts. `tokens` is an estimate of what will be computed."""
        client = self._account(item)
        client.running += 1
        self._running[work] = client
        self._charge(client, work, work.work + tokens)

    def end(self, work: WorkT) -> None:
        """Charge what was computed instead of the estimate, because a work has ended or waits again."""
        client = self._running.pop(work)
        self._charge(client, work, work.work)
        client.running -= 1
        self._forget(client)

    def order(self, cost: Callable[[ItemT], int]) -> Iterator[ItemT]:
        """Return the waiting items in the order in which they start if no item is added or discarded before.

        `cost` estimates the tokens of an item. Only this call needs the caller's lock; the iteration does not.
        """
        return _in_turns([(one.due, one.used, one.weight, one.waiting.ordered()) for one in self._due.ordered()], cost)

    def _account(self, item: ItemT) -> _Client[ItemT]:
        """Return the account of an item's client."""
        client = self._clients.get(item.client)
        if client is None:
            used = max(self._gone.pop(item.client, 0.0), self._reached)
            client = self._clients[item.client] = _Client(item.client, used, _bounded(item.weight))
        return client

    def _set_weight(self, client: _Client[ItemT], weight: float) -> None:
        if client.waiting:
            self._waiting_weight += weight - client.weight
            self._waiting_used += (weight - client.weight) * client.used
        client.weight = weight

    def _charge(self, client: _Client[ItemT], work: WorkT, tokens: int) -> None:
        """Replace what a client was charged for a work."""
        more = tokens - work.charged
        work.charged = tokens
        client.used += more / client.weight
        if client.waiting:
            self._waiting_used += more
            if _round(client.used) != client.due:
                self._place(client)

    def _place(self, client: _Client[ItemT]) -> None:
        """Let a client wait behind all others that are due in the same round."""
        client.due = _round(client.used)
        self._due.put(client, client.due)

    def _stop_waiting(self, client: _Client[ItemT]) -> None:
        self._due.discard(client)
        self._waiting_weight -= client.weight
        self._waiting_used -= client.weight * client.used
        if not self._due:
            self._waiting_weight = self._waiting_used = 0.0  # without the errors of rounding

    def _owed(self) -> dict[_Client[ItemT], int]:
        """Return the tokens that clients were charged and have not received yet."""
        owed: dict[_Client[ItemT], int] = {}
        for work, client in self._running.items():
            owed[client] = owed.get(client, 0) + work.charged - work.work
        return owed

    def _level(self, owed: dict[_Client[ItemT], int]) -> float:
        """Return where a client begins that begins to wait: what the waiting clients have received on average.

        So a client that filled all slots before gets no further one until the others have caught up with what its
        running requests will receive. If no client waits, it is the most that a running one has received: use of an
        engine for which no other client waited costs nothing later. The level never decreases.
        """
        if self._due:
            held = sum(tokens for client, tokens in owed.items() if client.waiting)
            level = (self._waiting_used - held) / self._waiting_weight
        else:
            level = max((one.used - tokens / one.weight for one, tokens in owed.items()), default=0.0)
        self._reached = max(self._reached, level)
        return self._reached

    def _forget(self, client: _Client[ItemT]) -> None:
        """Close the account of a client without requests. While others wait, its use is remembered."""
        if client.running or client.waiting:
            return
        del self._clients[client.name]
        if not self._due:
            self._reached = max(self._reached, client.used)
        elif client.used > self._reached:
            self._gone[client.name] = client.used
            if len(self._gone) > MOST_GONE:
                self._gone.popitem(last=False)


def _bounded(weight: float) -> float:
    return min(max(LEAST_WEIGHT, weight), MOST_WEIGHT)


def _round(used: float) -> int:
    return int(used // QUANTUM)


def _in_turns(clients: list[tuple[int, float, float, list[ItemT]]], cost: Callable[[ItemT], int]) -> Iterator[ItemT]:
    """Yield the items of clients in turns. A client is its round, use, weight and items; they come in order."""
    due = [(due, at, used, weight, iter(items)) for at, (due, used, weight, items) in enumerate(clients)]
    turn = len(due)
    while due:
        _, _, used, weight, items = heappop(due)
        item = next(items, None)
        if item is None:
            continue
        yield item
        used += cost(item) / weight
        heappush(due, (_round(used), turn, used, weight, items))
        turn += 1
