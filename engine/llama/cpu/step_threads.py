"""The number of CPU threads of each step: as many as are measured to be fastest.

More threads are not always faster. They wait for each other many times in a step, so that one of them without a core
delays all. The numbers are compared in trials: short windows of steps, by turns with the number in use and with the
next lower or higher one. A trial comes at the start, later seldom, and soon after the time of a step has changed. Where
the processor time of the steps shows that no thread lacks a core, fewer threads are tried seldom from the start on.

Threads wait for each other equally often in steps of all sizes. So a larger step never needs fewer threads than a
smaller one, and has no trial with fewer: one step of a long prompt with half of the threads would delay its neighbours
by as much again.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

logger = logging.getLogger(__name__)

Ladder = tuple[int, ...]
"""Numbers of threads to choose from, in ascending order."""

_WINDOW = 0.04
"""Seconds. A window is longer than the time slices that the kernel gives to other processes by turns."""
_STEPS = 3
_LONG_WINDOW = 0.2
"""Seconds that make a window of fewer steps."""
_SMALL = 16
"""Rows. Steps with fewer are compared at once; larger ones may take seconds, so that their first trial waits."""
_FIRST_PAUSE = 8
"""Windows before the first trial of large steps."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 8, 512
"""Time between two trials, relative to the time that the last one spent with the other number. It doubles while trials
make no change. The first ones follow each other soon, because the program itself starts on the same cores then; so do
those after the time of a step has changed."""
_PAUSE = 64
"""As `_SHORTEST_PAUSE`, after a number that is much slower, and before fewer threads while none lacks a core."""
_LACK = 0.3
"""Cores. Threads that lack no more than this together, as an average since the last trial, have a core each."""
_CHANGED = 1.5
"""Factor between two times of a step that are not the same."""
_CLEAR, _MOST_WINDOWS = 1.15, 12
"""Factor between the times of two numbers that needs no further windows, and the most windows of a trial. Steps
scatter: with two windows of each number, one thread was chosen every second time where two were a tenth faster."""
_GAIN = 0.97
"""Time of a step with more threads, relative to fewer, that makes them worthwhile. With equal times fewer are better:
the cores have other work."""


def ladder(most: int) -> Ladder:
    """Return the numbers of threads to choose from: all cores, all but one, and halves and three quarters of them."""
    halves = [most >> shift for shift in range(most.bit_length())]
    return tuple(sorted({most, max(1, most - 1), *halves, *(half * 3 // 4 for half in halves if half > 1)}))


class StepThreads:
    """Chooses the threads of each step. Steps of about equally many rows are compared with each other.

    A size has no fewer threads than all smaller ones that had a trial.
    """

    def __init__(self, *, single: Ladder, several: Ladder) -> None:
        """Start with the largest numbers.

        Args:
            single: numbers for steps of one row.
            several: numbers for steps of more rows.
        """
        self._single = single
        self._several = several
        self._tuners: dict[int, ThreadTuner] = {}

    def of(self, rows: int) -> "ThreadTuner":
        """Return the choice for steps of about so many rows."""
        size = rows.bit_length()
        if size not in self._tuners:
            numbers = self._single if rows == 1 else self._several
            pause = 0 if rows < _SMALL else _FIRST_PAUSE
            self._tuners[size] = ThreadTuner(numbers, first_pause=pause, least=partial(self._least, size))
        return self._tuners[size]

    def _least(self, size: int) -> int:
        """Return the most threads that are measured to be fastest for a smaller size; 0 without a measurement."""
        return max((tuner.measured for smaller, tuner in self._tuners.items() if smaller < size), default=0)


@dataclass(slots=True)
class _Window:
    """Consecutive steps with one number of threads."""

    seconds: float = 0.0
    """Time of the steps."""
    cpu_seconds: float = 0.0
    """Processor time in them."""
    rows: int = 0
    """Rows of the steps."""
    steps: int = 0
    """Number of steps."""

    @property
    def full(self) -> bool:
        """True if the window is long enough to be compared."""
        return self.seconds >= _WINDOW and (self.steps >= _STEPS or self.seconds >= _LONG_WINDOW)

    @property
    def cost(self) -> float:
        """Seconds a row."""
        return self.seconds / self.rows

    def lacks_cores(self, threads: int) -> bool:
        """Return whether some of so many threads had no core at times. They spin while they wait for each other."""
        return threads * self.seconds - self.cpu_seconds > _LACK * self.seconds

    def add(self, rows: int, seconds: float, cpu_seconds: float) -> None:
        """Add a step."""
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds
        self.rows += rows
        self.steps += 1

    def add_all(self, others: "_Window") -> None:
        """Add the steps of another window."""
        self.seconds += others.seconds
        self.cpu_seconds += others.cpu_seconds
        self.rows += others.rows
        self.steps += others.steps


@dataclass(slots=True)
class _Trial:
    """A comparison of two numbers of threads by windows of each, by turns."""

    level: int
    """Position of the other number in the ladder."""
    used: _Window = field(default_factory=_Window)
    """Steps with the number in use. That one of them was slow may be the reason for the trial: it does not count."""
    tried: _Window = field(default_factory=_Window)
    """Steps with the other number, which comes first."""
    windows: int = 0
    """Full windows."""

    @property
    def tries(self) -> bool:
        """True if the next step runs with the other number."""
        return self.windows % 2 == 0

    @property
    def rows(self) -> int:
        """Rows of a step, as an average."""
        return round(self.tried.rows / self.tried.steps)

    @property
    def ratio(self) -> float:
        """Time of a step with the other number, relative to the number in use."""
        return self.tried.cost / self.used.cost

    @property
    def over(self) -> bool:
        """True if the times differ much after two windows, or clearly after four or more."""
        if self.windows % 2:
            return False
        clear = _CHANGED if self.windows == 2 else _CLEAR  # noqa: PLR2004
        return self.windows == _MOST_WINDOWS or max(self.ratio, 1 / self.ratio) > clear

    def add(self, window: _Window) -> None:
        """Add a full window of the number whose turn it is."""
        (self.tried if self.tries else self.used).add_all(window)
        self.windows += 1


class ThreadTuner:
    """Chooses the threads of steps of one size."""

    def __init__(self, numbers: Ladder, *, first_pause: int, least: Callable[[], int] = lambda: 0) -> None:
        """Start with the largest number.

        Args:
            numbers: the numbers to choose from; with one there is no choice.
            first_pause: windows before the first trial.
            least: returns the smallest number that is worth a trial.
        """
        self._numbers = numbers
        self._least = least
        self._level = len(numbers) - 1
        self._direction = -1
        self._window = _Window()
        self._trial: _Trial | None = None
        self._trials = 0
        self._improved = False
        self._cost: float | None = None
        self._unit = 0.0
        self._pause = first_pause
        self._waited = _Window()

    @property
    def measured(self) -> int:
        """The number that was the fastest in the last trial; 0 before the first one."""
        return self._numbers[self._level] if self._trials else 0

    @property
    def threads(self) -> int:
        """The number of threads for the next step."""
        trial = self._trial
        return self._numbers[trial.level if trial and trial.tries else self._level]

    def observe(self, rows: int, seconds: float, cpu_seconds: float) -> None:
        """Record the time of a step with `threads`, and the processor time of the process in it."""
        if len(self._numbers) == 1:
            return
        self._window.add(rows, seconds, cpu_seconds)
        if not self._window.full:
            return
        window, self._window = self._window, _Window()
        if self._trial is None:
            self._wait(window)
        else:
            self._trial.add(window)
            if self._trial.over:
                self._decide(self._trial)

    def _wait(self, window: _Window) -> None:
        """Begin a trial if it is time for one."""
        if self._cost is None:
            self._cost, self._unit = window.cost, window.seconds
        self._waited.add_all(window)
        slower, faster = window.cost > self._cost * _CHANGED, window.cost * _CHANGED < self._cost
        if slower or faster:
            self._direction = -1 if slower else 1
            self._pause = min(self._pause, _SHORTEST_PAUSE)
        if (level := self._neighbour()) is None:
            return
        lacks = (window if slower else self._waited).lacks_cores(self._numbers[self._level])
        urgent = level > self._level or lacks or self._improved
        pause = self._pause if urgent else max(self._pause, _PAUSE)
        if self._waited.seconds >= pause * self._unit:
            self._trial, self._pause = _Trial(level), pause

    def _neighbour(self) -> int | None:
        """Return the next level in the direction of the search, which turns at both ends; None if there is none."""
        least = self._least()
        for direction in (self._direction, -self._direction):
            level = self._level + direction
            if 0 <= level < len(self._numbers) and self._numbers[level] >= least:
                self._direction = direction
                return level
        return None

    def _decide(self, trial: _Trial) -> None:
        """Take the better number. The search goes on in the same direction after a change, and turns without one."""
        gain = 1.0 if self._direction < 0 else _GAIN
        self._improved = better = trial.ratio <= gain
        if better:
            self._level = trial.level
            self._pause = 0
            logger.debug("threads of a step: %d", self._numbers[self._level], extra={"rows": trial.rows})
        else:
            self._direction = -self._direction
            least = _PAUSE if trial.ratio > _CHANGED else _SHORTEST_PAUSE
            self._pause = min(max(self._pause * 2, least), _LONGEST_PAUSE)
        self._cost = (trial.tried if better else trial.used).cost
        self._unit = trial.tried.seconds
        self._trials += 1
        self._waited = _Window()
        self._trial = None
