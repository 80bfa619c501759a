"""The step loop: plan, run, apply, one frame out; and what other threads may do to it between and during passes."""

import logging
import threading
from collections.abc import Callable

from engine.core.group import SequenceGroup
from engine.core.scheduler import News, Scheduler
from engine.core.sequence import Sequence
from engine.core.step import Runner, carry_out
from engine.events import Figures, SlotInfo

logger = logging.getLogger(__name__)

Publish = Callable[[News, Figures], None]


class StepLoop:
    """Drives a runner through a scheduler's plans. `run` belongs to one thread; the rest may come from any.

    The lock guards the scheduler and is never held during a pass, so a cancel or a question waits for no decode.
    """

    def __init__(self, scheduler: Scheduler, runner: Runner, publish: Publish) -> None:
        """`publish` takes all news of a moment and the figures of the same moment; it may be called from any thread."""
        self._scheduler = scheduler
        self._runner = runner
        self._publish = publish
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._stopped = False

    def check_room(self) -> None:
        """Raises `Busy` when the queue is full."""
        with self._lock:
            self._scheduler.check_room()

    def add(self, group: SequenceGroup, accept: Callable[[], None]) -> None:
        """Queue a request; `accept` tells of it before anything else can. Raises `Busy` when the queue is full."""
        with self._lock:
            self._scheduler.check_room()
            accept()
            self._scheduler.add(group)
            self._wake.notify()

    def cancel(self, key: int) -> None:
        """End a request. If that leaves nobody in the pass under way, the pass is aborted."""
        with self._lock:
            released = self._scheduler.cancel(key)
            if self._scheduler.abandoned:
                self._runner.abort()
            figures = self._scheduler.figures()
            self._wake.notify()
        if released is not None:
            self._publish([(key, released)], figures)

    def figures(self) -> Figures:
        """The figures of this moment."""
        with self._lock:
            return self._scheduler.figures()

    def inspect(self) -> tuple[tuple[SlotInfo, ...], Figures]:
        """Every slot, and the figures of the same moment."""
        with self._lock:
            return self._scheduler.inspect(), self._scheduler.figures()

    def stop(self) -> None:
        """End `run`: the pass under way is aborted and what runs is left as it is."""
        with self._lock:
            self._stopped = True
            self._runner.abort()
            self._wake.notify()

    def run(self) -> None:
        """Step while there is work, sleep while there is none, return when stopped.

        Raises what the runner raises: then the model can no longer be trusted.
        """
        while self._step():
            pass

    def _step(self) -> bool:
        with self._lock:
            while not (self._scheduler.busy or self._stopped):
                self._wake.wait()
            if self._stopped:
                return False
            work = self._scheduler.plan()
            figures = self._scheduler.figures()
        for change in work.changes:
            carry_out(change, self._runner)
        for sequence in work.ended:
            self._end(sequence)
        if work.news:
            self._publish(work.news, figures)
        if work.plan is None or not self._arm():
            return True
        result = self._runner.run(work.plan)
        with self._lock:
            news = self._scheduler.apply(work.plan, result)
            figures = self._scheduler.figures()
        self._publish(news, figures)
        return True

    def _arm(self) -> bool:
        """The last look before a pass: whoever was cancelled since it was planned is not carried in it."""
        with self._lock:
            self._runner.arm()
            return self._scheduler.intact and not self._stopped

    def _end(self, sequence: Sequence) -> None:
        self._runner.close(sequence)
        fields = {"request_id": sequence.request_id, "choice": sequence.choice, "tokens": sequence.generated}
        logger.debug("sequence ended", extra=fields)
