"""The step loop: plan, run, apply, over lanes in turn; and what other threads may do between and during passes."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import reduce
from itertools import chain
from operator import add, attrgetter
from typing import Any

from engine.core.lane import Job, Work
from engine.core.turns import Turns
from engine.errors import LoadError
from engine.events import EngineMetrics, Event, Released, SlotInfo
from engine.worker.lanes.lane import AnyLane, JobT, Lane, PlanT, RequestT_contra, ResultT

logger = logging.getLogger(__name__)

Publish = Callable[[Iterable[tuple[int, Event]], EngineMetrics], None]

_values = attrgetter(*(figure.name for figure in fields(EngineMetrics)))


class StepLoop:
    """Makes the passes of all lanes, one after another. `run` belongs to one thread; the rest may come from any.

    The lock guards the lanes' schedulers and is never held during a pass, so a cancel or a query waits for no decode.
    """

    def __init__(self, lanes: Iterable[AnyLane], publish: Publish) -> None:
        """Serve at least one lane.

        `publish` takes all news of a moment and the metrics of the same moment; it may be called from any thread.
        """
        self._lanes = tuple(lanes)
        self._turns = Turns(len(self._lanes))
        self._publish = publish
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._stopped = False

    def check_room(self, lane: AnyLane) -> None:
        """Raise `Busy` when a lane's queue is full."""
        with self._lock:
            lane.scheduler.check_room()

    def add(self, lane: AnyLane, job: Job, accept: Callable[[], None]) -> None:
        """Queue a request in a lane. Call `accept` before any news of it. Raises `Busy` when the queue is full."""
        with self._lock:
            lane.scheduler.check_room()
            accept()
            lane.scheduler.add(job)
            self._wake.notify()

    def cancel(self, key: int) -> None:
        """End a request. A pass under way that is left without members is aborted."""
        released: Released | None = Released("gone", 0, 0)
        with self._lock:
            for lane in self._lanes:
                if key in lane.scheduler:
                    released = lane.scheduler.cancel(key)
                    if lane.scheduler.in_step.abandoned:
                        lane.abort()
            metrics = self._metrics()
            self._wake.notify()
        if released is not None:
            self._publish([(key, released)], metrics)

    def metrics(self) -> EngineMetrics:
        """Return the metrics of this moment."""
        with self._lock:
            return self._metrics()

    def inspect(self) -> tuple[tuple[SlotInfo, ...], EngineMetrics]:
        """Return every slot, and the metrics of the same moment."""
        with self._lock:
            return tuple(chain.from_iterable(lane.scheduler.inspect() for lane in self._lanes)), self._metrics()

    def stop(self) -> None:
        """End `run`: the pass under way is aborted, and requests are left as they are."""
        with self._lock:
            self._stopped = True
            for lane in self._lanes:
                lane.abort()
            self._wake.notify()

    def run(self) -> None:
        """Step while there is work, sleep while there is none, return when stopped.

        Raises what a lane raises: then the model can no longer be trusted.
        """
        while self._step():
            pass

    def _step(self) -> bool:
        with self._lock:
            while not (self._stopped or any(lane.scheduler.busy for lane in self._lanes)):
                self._wake.wait()
            if self._stopped:
                return False
            works = self._plan()
            news = [one for _, work in works for one in work.news]
            metrics = self._metrics() if news else None
        for lane, work in works:
            lane.carry_out(work.changes, self._lock)
        if metrics is not None:
            self._publish(news, metrics)
        for lane, work in works:
            if work.plan is not None:
                self._make_pass(lane, work.plan)
        return True

    def _plan(self) -> list[tuple[AnyLane, Work[Any]]]:
        """Plan for every lane; one of them makes a pass, if there is demand."""
        demands = [lane.scheduler.demand() for lane in self._lanes]
        contended = sum(map(any, demands)) > 1
        turns = zip(self._lanes, self._turns.next(demands), strict=True)
        return [(lane, lane.scheduler.plan(turn, contended=contended)) for lane, turn in turns]

    def _make_pass(self, lane: Lane[RequestT_contra, JobT, PlanT, ResultT], plan: PlanT) -> None:
        if not self._arm(lane):
            return
        try:
            result = lane.run(plan)
        except LoadError as error:
            self._fail(lane, error.message)
            return
        with self._lock:
            news = lane.scheduler.apply(plan, result)
            metrics = self._metrics()
        self._publish(news, metrics)

    def _arm(self, lane: AnyLane) -> bool:
        """Take the last look before a pass: one that carries a request cancelled since it was planned is dropped."""
        with self._lock:
            lane.arm()
            if lane.scheduler.in_step.complete and not self._stopped:
                return True
            lane.scheduler.in_step.end()
            return False

    def _fail(self, lane: AnyLane, why: str) -> None:
        logger.error("a pass cannot be made, and its requests fail", extra={"lane": type(lane).__name__, "why": why})
        with self._lock:
            lane.scheduler.fail_all(why)

    def _metrics(self) -> EngineMetrics:
        return reduce(_sum, (lane.scheduler.metrics() for lane in self._lanes))


def _sum(one: EngineMetrics, other: EngineMetrics) -> EngineMetrics:
    return EngineMetrics(*map(add, _values(one), _values(other)))
