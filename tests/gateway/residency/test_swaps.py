"""Swaps under steady load, simulated: each serves a batch, and every client goes on."""

import heapq
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.terms import Grant, Load, ModelTerms, ResidencyLimits, Ticket, Unload

LOAD, END, SERVE = 5.0, 0.5, 1.0
"""Seconds of a load, of the end of a process, and of a request."""
CLIENTS = 6
"""Clients of each model, of which each asks again at once."""
SECONDS = 200.0
LIMITS = ResidencyLimits(batch_requests=30, batch_seconds=10)


class Simulation:
    """Models that share memory, and clients in closed loops, on a virtual clock."""

    def __init__(self, models: str, room: int) -> None:
        self.policy = Residency((ModelTerms(model, Memory(1)) for model in models), Memory(room), LIMITS)
        self.now = 0.0
        self.loads, self.served = Counter[str](), Counter[str]()
        self.longest_wait = 0.0
        self._arrived: dict[Ticket, float] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen after a time."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self) -> None:
        """Run until the time is over."""
        while self._events[0][0] < SECONDS:
            self.now, _, event = heapq.heappop(self._events)
            event()
            for action in self.policy.decide(self.now):
                match action:
                    case Load(model):
                        self.loads[model] += 1
                        self.at(LOAD, partial(self.loaded, model))
                    case Unload(model):
                        self.at(END, partial(self.policy.unloaded, model))
                    case Grant(ticket):
                        self.longest_wait = max(self.longest_wait, self.now - self._arrived.pop(ticket))
                        self.at(SERVE, partial(self.end, ticket))

    def ask(self, model: str) -> None:
        """Let a client of a model ask."""
        self._arrived[self.policy.arrive(model)] = self.now

    def loaded(self, model: str) -> None:
        """End the load of a model."""
        self.policy.loaded(model, Memory(1), self.now)

    def end(self, ticket: Ticket) -> None:
        """End a request, whose client asks again."""
        self.served[ticket.model] += 1
        self.policy.leave(ticket, self.now)
        self.ask(ticket.model)


@pytest.mark.parametrize(("models", "room"), [("ab", 1), ("abc", 2), ("abcde", 2)])
def test_each_swap_serves_a_batch_and_every_model_has_its_share(models: str, room: int) -> None:
    simulation = Simulation(models, room)
    for model in models:
        for client in range(CLIENTS):
            simulation.at(client * 0.1, partial(simulation.ask, model))
    simulation.run()
    assert all(simulation.served[model] >= 20 * (simulation.loads[model] - 1) for model in models)
    assert min(simulation.served.values()) > max(simulation.served.values()) / 2
    assert simulation.longest_wait < len(models) * (LIMITS.batch_seconds + LOAD + END + 2 * SERVE)
