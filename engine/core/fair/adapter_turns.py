"""Turns among sets of LoRA adapters. Pure.

All rows of a step have one set, and the first step with another set takes longer. So sets take turns of several steps.
"""

from collections import Counter, deque
from statistics import median

from engine.core.sequence import Sequence
from engine.core.step import Outcome, StepPlan, StepResult
from engine.request import AdapterSet

AMORTIZED = 10
"""A turn lasts at least so many times as long as the change to its set takes: changes take a tenth of the time."""
_RECENT = 5
"""Changes. The median of so many measured durations counts."""


class AdapterTurns:
    """Selects the set of adapters of the next step.

    Sets take turns in a circle, so that none starves. A turn lasts until its set has received its share of the time,
    in which each sequence counts the same. A turn is long enough to be worth the change to its set. All other turns
    together are no longer than `longest`, except that each has at least one step: so a set waits for a bounded time.
    The shares remember no more than what a set could receive in `longest`.
    """

    changes: int
    """Number of steps with another set than the step before."""

    def __init__(self, longest: float) -> None:
        """Start without measurements. `longest` is the maximum time, in seconds, that a set waits for all others."""
        self._longest = longest
        self._current: AdapterSet = ()
        self._waiting: Counter[AdapterSet] = Counter()
        self._received: dict[AdapterSet, float] = {}
        self._steps = 0
        self._seconds = 0.0
        self._first_rows = 0
        self._first_seconds = 0.0
        self.changes = 0
        self._computed: AdapterSet = ()
        self._costs: deque[float] = deque(maxlen=_RECENT)

    @property
    def change_seconds(self) -> float | None:
        """The additional duration of the first step of a turn; unset before it was measured."""
        return median(self._costs) if self._costs else None

    @property
    def waiting(self) -> int:
        """Number of sets that wait for the current one."""
        return max(0, len(self._waiting) - 1)

    def take(self, ready: list[Sequence]) -> list[Sequence]:
        """Return the sequences that the next step may compute: those with the set whose turn it is."""
        self._waiting = Counter(sequence.adapters for sequence in ready)
        if len(self._waiting) > 1:
            self._enter()
            if self._current not in self._received or self._is_over():
                self._begin(next(one for one in self._received if one != self._current))
            return [sequence for sequence in ready if sequence.adapters == self._current]
        self._received.clear()
        if ready and ready[0].adapters != self._current:
            self._begin(ready[0].adapters)
        return ready

    def observe(self, plan: StepPlan, result: StepResult) -> None:
        """Record a step of the current turn."""
        self._steps += 1
        self._seconds += result.seconds
        changed = plan.adapters != self._computed
        self._computed = plan.adapters
        self.changes += changed
        self._measure(plan, result, changed=changed)
        if plan.adapters in self._received:
            self._received[plan.adapters] += result.seconds / self._waiting[plan.adapters]
            most = self._received[plan.adapters]
            for one, received in self._received.items():
                self._received[one] = max(received, most - self._longest / self._waiting[one])

    def _enter(self) -> None:
        """Drop the sets without sequences, and let new ones wait behind all others."""
        self._received = {one: received for one, received in self._received.items() if one in self._waiting}
        least = min(self._received.values(), default=0.0)
        for one in self._waiting:
            self._received.setdefault(one, least)

    def _begin(self, adapters: AdapterSet) -> None:
        """Begin the turn of a set. Its next one comes after those of all others."""
        self._current = adapters
        self._steps, self._seconds, self._first_rows = 0, 0.0, 0
        if adapters in self._received:
            self._received[adapters] = self._received.pop(adapters)

    def _is_over(self) -> bool:
        """Return whether the current turn is over."""
        if not self._steps or (self._first_rows and not self._costs):  # the second step measures the first
            return False
        if self._seconds >= self._longest / self.waiting:
            return True
        others = (received for one, received in self._received.items() if one != self._current)
        paid = self._seconds >= AMORTIZED * (self.change_seconds or 0.0)
        return paid and self._received[self._current] >= min(others)

    def _measure(self, plan: StepPlan, result: StepResult, *, changed: bool) -> None:
        """Compare the step of a change with the next one, if both are decode steps of equally many rows."""
        comparable = plan.decode and result.outcome is Outcome.DONE
        if comparable and not changed and self._first_rows == plan.tokens:
            self._costs.append(max(0.0, self._first_seconds - result.seconds))
        self._first_rows = plan.tokens if comparable and changed else 0
        self._first_seconds = result.seconds
