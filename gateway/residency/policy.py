"""Decisions on the models in memory, as a state machine: it reads no clock, does no I/O and never waits.

Requests for a model that is not loaded wait in order of arrival. The model of the oldest one is loaded next. Where room
is missing, idle models are unloaded, the least recently used first. A model in use is never unloaded: it first serves a
batch from its load on, then takes no further request, and its room is free once it is idle. So each swap serves many
requests, and each request is served after a bounded number of swaps.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from engine.errors import Busy
from gateway.residency.memory import Memory
from gateway.residency.resident import Resident
from gateway.residency.room import victims
from gateway.residency.terms import Action, Grant, Load, ModelTerms, Phase, Refuse, ResidencyLimits, Ticket, Unload


class Residency:
    """Models that share a budget of memory. After each event, `decide` returns the actions that follow.

    Times are arguments, of any clock that does not go back.
    """

    def __init__(self, models: Iterable[ModelTerms], budget: Memory, limits: ResidencyLimits | None = None) -> None:
        """Start with every model unloaded. Those that are loaded at the start come first.

        Args:
            models: terms of the models.
            budget: bytes that the loaded models may take together.
            limits: limits of waiting, swapping and trying again; None takes the defaults.
        """
        self.budget = budget
        """Bytes that the loaded models may take together."""
        self._limits = limits or ResidencyLimits()
        self._residents: dict[str, Resident] = {}
        self._turns = 0
        self._decided_at = -math.inf
        self._actions: list[Action] = []
        for terms in models:
            self.add(terms)
            if terms.keep_loaded or terms.load_at_start:
                self[terms.name].wanted = self._next_turn()

    def __getitem__(self, model: str) -> Resident:
        """Return the account of a model."""
        return self._residents[model]

    @property
    def all(self) -> Iterable[Resident]:
        """Accounts of all models."""
        return self._residents.values()

    def add(self, terms: ModelTerms) -> Resident:
        """Add a model, which is not loaded, and return its account."""
        resident = self._residents[terms.name] = Resident(terms, terms.need)
        return resident

    def remove(self, model: str) -> None:
        """Forget a model that is gone."""
        del self._residents[model]

    @property
    def used(self) -> Memory:
        """Bytes of all models that have a process."""
        return sum((one.need for one in self._in(Phase.LOADING, Phase.LOADED, Phase.UNLOADING)), Memory())

    @property
    def _soon_free(self) -> Memory:
        """Bytes that are free once the processes that end now have ended."""
        return self.budget - sum((one.need for one in self._in(Phase.LOADING, Phase.LOADED)), Memory())

    def arrive(self, model: str) -> Ticket:
        """Record a request for a model. It is granted or refused by `decide`, until it leaves.

        Raises:
            Busy: too many requests wait, and this one would have to.
        """
        resident, turn = self._residents[model], self._next_turn()
        at_once = resident.phase is Phase.LOADED and resident.takes(turn, self._limits, self._decided_at)
        if not at_once and sum(len(one.waiting) for one in self.all) >= self._limits.waiting:
            raise Busy("Too many requests wait for models.", code="queue_full")
        ticket = Ticket(model, turn)
        resident.waiting[ticket] = None
        return ticket

    def leave(self, ticket: Ticket, now: float) -> None:
        """Record that a request has left, whether it waited for its model or used it."""
        resident = self._residents[ticket.model]
        if ticket in resident.waiting:
            del resident.waiting[ticket]
        else:
            resident.users -= 1
            resident.used_at = now

    def want(self, model: str) -> bool:
        """Record the operator's order to load a model. It ends a back-off, and a load no longer needs a request.

        Returns False if the model is loaded, and no order to unload it is pending.
        """
        resident = self._residents[model]
        stays = resident.phase is Phase.LOADED and resident.leaves is None
        if resident.next_need is None:  # an old file leaves all the same
            resident.leaves = None
        if resident.phase is not Phase.LOADED or resident.leaves is not None:
            resident.wanted, resident.retry_at = resident.wanted or self._next_turn(), 0.0
        return not stays

    def keep(self, model: str, seconds: float | None) -> None:
        """Record how long a request wants its model to stay if none follows; None: until another needs its room."""
        self._residents[model].idle_unload = seconds

    def dismiss(self, model: str) -> None:
        """Record the operator's order to unload a model once no request uses it or waits for its load."""
        resident = self._residents[model]
        resident.wanted = None
        if resident.leaves is None and resident.phase in {Phase.LOADING, Phase.LOADED}:  # an old file leaves at once
            resident.leaves = self._next_turn()

    def resize(self, model: str, need: Memory) -> bool:
        """Record the bytes of a model that is being loaded, now that they are known better.

        Returns False if there is no room for them. `decide` then ends the load, and the model waits for room.
        """
        resident = self._residents[model]
        if need.fits(self.budget - self.used + resident.need):
            resident.need = need
            return True
        resident.next_need = need
        return False

    def replace(self, model: str, need: Memory) -> None:
        """Record that a model has another file, with the bytes that it takes.

        Its process ends once no request uses it. The new file is loaded for the requests that wait.
        """
        resident = self._residents[model]
        if resident.phase is Phase.UNLOADED:
            resident.need, resident.retry_at = need, 0.0  # it is not the new file that failed
        else:
            resident.next_need = need
            resident.leaves = 0 if resident.phase is Phase.LOADED else None

    def loaded(self, model: str, need: Memory, now: float) -> None:
        """Record that a model is loaded, and the bytes that it takes.

        A model that was loaded can be loaded again: it counts with the room at most that it can have.
        """
        resident = self._residents[model]
        resident.loaded(need.at_most(self._limit_of(resident)), now)
        if resident.leaves is not None:  # it first serves all that have waited
            resident.leaves = self._next_turn()

    def failed(self, model: str, reason: str, now: float) -> None:
        """Record that a model could not be loaded, or loaded again, and its process has ended."""
        resident = self._residents[model]
        if resident.phase is Phase.LOADED and resident.terms.keep_loaded and resident.leaves is None:
            resident.wanted = self._next_turn()
        resident.failed(reason, self._limits, now)

    def unloaded(self, model: str) -> None:
        """Record that the process of a model has ended, as `Unload` asked."""
        self._residents[model].unloaded()

    def decide(self, now: float) -> Sequence[Action]:
        """Return the actions that follow from all events so far, in order."""
        self._actions, self._decided_at = [], now
        self._refuse(now)
        self._grant(now)
        self._unload_unused(now)
        self._make_room(now)
        self._grant(now)  # to those that no longer need to yield
        return self._actions

    def wake_at(self) -> float:
        """Return the next time at which `decide` must run without an event; infinity if there is none.

        It may have passed since the last decision.
        """
        idle = [resident.idle_until for resident in self.all]
        failed = (one for one in self._in(Phase.UNLOADED) if one.turn is not None)
        retries = [one.retry_at for one in failed if one.retry_at > self._decided_at]  # the others wait for room
        return min([*retries, *(time for time in idle if time is not None)], default=math.inf)

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _in(self, *phases: Phase) -> Iterator[Resident]:
        return (resident for resident in self.all if resident.phase in phases)

    def _refuse(self, now: float) -> None:
        """Refuse the requests for models that cannot be loaded now, or ever."""
        for resident in self._in(Phase.UNLOADED):
            limit = self._limit_of(resident)
            if not resident.need.fits(limit):
                resident.failure = f"The model needs {resident.need}, and there is room for {limit}."
                resident.wanted = None
                self._refuse_all(resident, None)
            elif now < resident.retry_at:
                self._refuse_all(resident, resident.retry_at - now)

    def _refuse_all(self, resident: Resident, retry_after: float | None) -> None:
        self._actions += [Refuse(ticket, resident.failure, retry_after) for ticket in resident.waiting]
        resident.waiting.clear()

    def _limit_of(self, resident: Resident) -> Memory:
        """Return the bytes of a model that can have its room: the budget without the models that are kept loaded."""
        kept = (one.need for one in self.all if one.terms.keep_loaded and one is not resident)
        return self.budget - sum(kept, Memory())

    def _grant(self, now: float) -> None:
        for resident in self._in(Phase.LOADED):
            for ticket in tuple(resident.waiting):
                if not resident.takes(ticket.turn, self._limits, now):
                    break
                del resident.waiting[ticket]
                resident.users += 1
                resident.granted += 1
                resident.idle_unload = resident.terms.idle_unload  # the wishes of requests before it have ended
                self._actions.append(Grant(ticket))

    def _unload_unused(self, now: float) -> None:
        """End the loads that none waits for, or that have no room or an old file, and models idle for too long."""
        for resident in self.all:
            needless = resident.turn is None or resident.next_need is not None
            abandoned = resident.phase is Phase.LOADING and needless
            if abandoned or (resident.idle and (resident.leaves is not None or resident.overdue(now))):
                self._unload(resident)

    def _make_room(self, now: float) -> None:
        """Load the models that are waited for, oldest first, as far as there is room, and make room for the next one.

        One that waits for room stops those behind it, so that a large model is not passed by small ones for ever.
        """
        yielded = {resident for resident in self.all if resident.yields}
        chosen: list[Resident] = []
        for resident in self._candidates(now):
            if resident.need.fits(self.budget - self.used):
                resident.begin()
                self._actions.append(Load(resident.name))
                continue
            chosen = self._victims(resident)
            break
        else:
            self._return_excess()
        for resident in self.all:
            resident.yields = resident in chosen and (resident in yielded or not resident.idle)
        if all(resident.idle for resident in chosen):
            for resident in chosen:
                self._unload(resident)

    def _candidates(self, now: float) -> list[Resident]:
        """Return the models to load, in order of their oldest requests."""
        waited = [one for one in self._in(Phase.UNLOADED) if one.turn is not None and one.retry_at <= now]
        return sorted(waited, key=lambda one: one.turn or 0)

    def _victims(self, resident: Resident) -> list[Resident]:
        """Return the models that must end for this one; none if the room that it waits for is being freed."""
        return victims(resident.need, self._soon_free, self._removable()) or []

    def _return_excess(self) -> None:
        """Unload idle models where loaded ones take more than was estimated."""
        excess = self._soon_free.deficit
        if excess != Memory():
            idle = [resident for resident in self._removable() if resident.idle]
            for resident in victims(excess, Memory(), idle) or idle:
                self._unload(resident)

    def _removable(self) -> list[Resident]:
        return [resident for resident in self._in(Phase.LOADED) if not resident.terms.keep_loaded]

    def _unload(self, resident: Resident) -> None:
        resident.phase = Phase.UNLOADING
        self._actions.append(Unload(resident.name))
