"""Step loop over all lanes: plan, run, apply; and its thread-safe interface for other threads."""

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial, reduce
from itertools import chain, islice
from operator import add
from typing import Any

from engine.background import Background
from engine.core.kv.prefix_file import FileService
from engine.core.lane import Job, News, Work
from engine.core.turns import NO_DEMAND, Turns
from engine.events import Event, Released
from engine.info import EngineMetrics, HeldPrefix, SlotInfo
from engine.worker.lanes.lane import AnyLane, JobT, Lane, PlanT, RequestT_contra, ResultT
from engine.worker.progress import Progress

Publish = Callable[[Iterable[tuple[int, Event]], EngineMetrics], None]


class StepLoop:
    """Runs the steps of all lanes, one after another. `run` is for one thread; all other methods are thread-safe.

    The lock guards the lanes' schedulers. It is never held during a step, so a cancel or a query never waits for one.

    Where the next step is known as soon as the tokens of the last one are drawn, it starts at once, and another thread
    applies the result of the last one meanwhile: texts, stop strings, counters and news. If the step needs all cores,
    these come before it.
    """

    def __init__(
        self, lanes: Iterable[AnyLane], publish: Publish, progress: Progress, background: Background | None = None
    ) -> None:
        """Create the loop of one or more lanes.

        Args:
            lanes: Lanes that take turns.
            publish: Sends events, and the metrics of the moment after them. Called by one thread at a time.
            progress: Times the steps.
            background: Applies the result of a step while the next one runs. By default it has a thread of its own.
        """
        self._lanes = tuple(lanes)
        self._turns = Turns(len(self._lanes))
        self._publish = publish
        self._progress = progress
        self._lock = threading.Lock()
        self._publishing = threading.Lock()  # taken before the other, so that metrics come in their order
        self._wake = threading.Condition(self._lock)
        self._stopped = False
        self._jobs: list[tuple[Callable[[], None], Callable[[], bool]]] = []
        self._following: tuple[AnyLane, Any] | None = None
        self._background = background or Background("results")

    def check_room(self, lane: AnyLane, client: str) -> None:
        """Check that the queue of a lane has room for a request of a client.

        Raises:
            Busy: The queue is full, or its rest is kept for other clients.
        """
        with self._lock:
            lane.scheduler.check_room(client)

    def add(self, lane: AnyLane, job: Job, accept: Callable[[], None]) -> None:
        """Queue a request in a lane. Calls `accept` before its first event.

        Raises:
            Busy: The queue is full, or its rest is kept for other clients.
        """
        with self._lock:
            lane.scheduler.check_room(job.client)
            accept()
            lane.scheduler.add(job)
            self._wake.notify()

    def cancel(self, key: int) -> None:
        """Cancel a request. Aborts the running step if all its requests are cancelled."""
        released: Released | None = Released("gone", 0, 0)
        with self._lock:
            for lane in self._lanes:
                if key in lane.scheduler:
                    released = lane.scheduler.cancel(key)
                    if lane.scheduler.in_step.abandoned:
                        lane.abort()
            self._wake.notify()
        if released is not None:
            self.publish([(key, released)])

    def between_steps(self, job: Callable[[], None], *, when: Callable[[], bool]) -> None:
        """Call a job once, in the step thread under the lock, between two steps.

        Args:
            job: If it raises, the process ends.
            when: Returns whether the job may be called. Asked under the lock, after each step and each change of the
                loop's work.
        """
        with self._lock:
            self._jobs.append((job, when))
            self._wake.notify()

    def publish(self, news: News) -> None:
        """Publish news with the metrics of the moment."""
        with self._publishing:
            with self._lock:
                metrics = self._metrics()
            self._publish(news, metrics)

    def inspect(self, answer: Callable[[tuple[SlotInfo, ...], EngineMetrics], None]) -> None:
        """Call a function with every slot, and the metrics of the same moment, before later ones are published."""
        with self._publishing:
            with self._lock:
                slots = tuple(chain.from_iterable(lane.scheduler.inspect() for lane in self._lanes))
                metrics = self._metrics()
            answer(slots, metrics)

    def queue(self) -> tuple[int, ...]:
        """Return the keys of the waiting requests in the order of the queue. Most of the work is outside the lock."""
        with self._lock:
            orders = [lane.scheduler.queue() for lane in self._lanes]
        return tuple(chain.from_iterable(orders))

    def held(self, most: int) -> tuple[HeldPrefix, ...]:
        """Return the prefixes that can be reused, at most so many. Most of the work is outside the lock."""
        with self._lock:
            held = [lane.scheduler.held() for lane in self._lanes]
        return tuple(islice(chain.from_iterable(held), most))

    def locked(self, work: Callable[[], None]) -> None:
        """Call a function that changes a scheduler, and look for work again."""
        with self._lock:
            work()
            self._wake.notify()

    def stop(self) -> None:
        """End `run`: abort the running step, and leave the requests as they are."""
        with self._lock:
            self._stopped = True
            for lane in self._lanes:
                lane.abort()
            self._wake.notify()

    def run(self) -> None:
        """Run steps while there is work, sleep while idle, return after `stop`.

        Raises:
            Exception: A lane raised it, and the state of the model is undefined.
        """
        with self._background:
            while self._following or self._wait():
                with self._progress:
                    self._step()

    def write_rest(self, files: FileService, seconds: float) -> None:
        """Write cached cells that are worth it, unless a sequence still runs. Call it after `run`, in its thread."""
        deadline = time.monotonic() + seconds
        files.flush(seconds)
        while time.monotonic() < deadline:
            with self._lock:
                works = [(lane, lane.scheduler.plan(None, contended=False)) for lane in self._lanes]
            if not any(work.changes for _, work in works):
                return
            for lane, work in works:
                lane.carry_out(work.changes, self._lock)
            files.flush(deadline - time.monotonic())

    def _wait(self) -> bool:
        """Wait for work. Returns False after `stop`."""
        with self._lock:
            while not (self._stopped or self._jobs or any(lane.scheduler.busy for lane in self._lanes)):
                self._wake.wait()
            return not self._stopped

    def _step(self) -> None:
        if self._following:
            self._run_step(*self._following)
        else:
            self._next_step()

    def _next_step(self) -> None:
        with self._lock:
            done = self._do_jobs()
            works = self._plan()
            if self._jobs and not works and not self._stopped:  # a job waits for a sequence that waits for a file
                self._wake.wait()
        for lane, work in works:
            lane.carry_out(work.changes, self._lock)
        if (news := [one for _, work in works for one in work.news]) or done:
            self.publish(news)
        for lane, work in works:
            if work.plan is not None and self._arm(lane):
                self._run_step(lane, work.plan)

    def _do_jobs(self) -> bool:
        """Do the jobs that may be done now. Return whether there were any: they may have changed cells."""
        jobs, self._jobs = self._jobs, []
        for job, when in jobs:
            if when():
                job()
            else:
                self._jobs.append((job, when))
        return len(self._jobs) < len(jobs)

    def _plan(self) -> list[tuple[AnyLane, Work[Any]]]:
        """Return the work of every lane that has some. At most one lane runs a step, if there is demand."""
        demands = [lane.scheduler.demand() if lane.scheduler.busy else NO_DEMAND for lane in self._lanes]
        contended = sum(map(any, demands)) > 1
        turns = zip(self._lanes, self._turns.next(demands), strict=True)
        return [(lane, lane.scheduler.plan(turn, contended=contended)) for lane, turn in turns if lane.scheduler.busy]

    def _run_step(self, lane: Lane[RequestT_contra, JobT, PlanT, ResultT], plan: PlanT) -> None:
        self._following = None
        result = lane.run(plan)
        self._background.wait()
        if following := self._follow_up(lane, plan, result):
            self._following = lane, following
        if following and not lane.needs_all_cores(following):
            self._background.begin(partial(self._apply, lane, plan, result))
        else:
            self._apply(lane, plan, result)

    def _follow_up(
        self, lane: Lane[RequestT_contra, JobT, PlanT, ResultT], plan: PlanT, result: ResultT
    ) -> PlanT | None:
        """Return the next step, if it is known before the result is applied.

        It needs no `arm`: an abort comes with the end of the loop, or of all members of a step that no other follows.
        """
        with self._lock:
            if self._stopped or any(when() for _, when in self._jobs):
                return None
            for other in self._lanes:
                if other is not lane and other.scheduler.busy:
                    return None
            return lane.scheduler.follow_up(plan, result)

    def _apply(self, lane: Lane[RequestT_contra, JobT, PlanT, ResultT], plan: PlanT, result: ResultT) -> None:
        with self._publishing:  # from before the result: a cancel that finds a request ended comes after its news
            with self._lock:
                news = lane.scheduler.apply(plan, result)
                if lane.scheduler.in_step.abandoned:  # the next step runs already, and all its rows have ended
                    lane.abort()
                metrics = self._metrics()
            self._publish(news, metrics)

    def _arm(self, lane: AnyLane) -> bool:
        """Arm a lane for its step. Returns False and drops the step if it has a request cancelled since the plan."""
        with self._lock:
            lane.arm()
            if lane.scheduler.in_step.complete and not self._stopped:
                return True
            lane.scheduler.in_step.end()
            return False

    def _metrics(self) -> EngineMetrics:
        return reduce(add, (lane.scheduler.metrics() for lane in self._lanes))
