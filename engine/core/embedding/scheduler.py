"""The scheduler of embeddings: selects the texts of the next step.

Pure, like the scheduler of generations, and guarded by the same lock.
"""

import heapq
from collections.abc import Iterator

from engine.core.budget import PromptBudget
from engine.core.counters import Counters
from engine.core.embedding.step import (
    EmbeddingChunk,
    EmbeddingJob,
    EmbeddingLimits,
    EmbeddingPlan,
    EmbeddingStepResult,
    EmbeddingText,
)
from engine.core.fair.turns import FairTurns
from engine.core.kv.cell_changes import Removal
from engine.core.lane import News, Outbox, StepMembers, Work
from engine.core.step import Outcome
from engine.core.turns import Demand, Turn
from engine.events import Embedded, Failed, Released
from engine.fairness.shares import Shares
from engine.info import NO_METRICS, EngineMetrics, HeldPrefix, SlotInfo


class EmbeddingScheduler:
    """Owns every embedding request from its admission to its end. Implements `engine.core.lane.LaneScheduler`.

    Clients take turns by tokens, as in the queue of generations, and the requests of a client with one text each. So a
    request with many texts delays the others only by its running texts. The cost of an operation does not depend on
    the length of the queue, except for the logarithm of a heap.
    """

    def __init__(self, limits: EmbeddingLimits, *, step_target: float, queue_limit: int) -> None:
        """Start without requests.

        Args:
            limits: the limits of the embedder.
            step_target: target duration, in seconds, of a step that delays others.
            queue_limit: maximum number of requests without a started text.
        """
        self._limits = limits
        self.cells = limits.smallest
        """Number of cells that the embedder must have. It grows with a plan, where no text is unfinished."""
        self._budget = PromptBudget(step_target)
        self._shares = Shares(queue_limit)
        self._jobs: dict[int, EmbeddingJob] = {}
        self._turns: FairTurns[EmbeddingJob, EmbeddingText] = FairTurns()
        self._running: dict[int, EmbeddingText] = {}
        self._free = list(range(limits.texts))
        self._dropped: list[int] = []  # free after their cells are dropped
        self._outbox = Outbox()
        self._open = 0  # texts that have not ended
        self._counters = Counters()
        self.in_step: StepMembers[EmbeddingText] = StepMembers()

    @property
    def busy(self) -> bool:
        """True if there is work."""
        return bool(self._jobs or self._outbox)

    def __contains__(self, key: int) -> bool:
        """Return whether the scheduler owns a request."""
        return key in self._jobs

    def check_room(self, client: str) -> None:
        """Check that one more request of a client may wait.

        Raises:
            Busy: the queue is full, or its rest is kept for other clients.
        """
        self._shares.check_room(client)

    def add(self, job: EmbeddingJob) -> None:
        """Append a request to the queue. `check_room` comes first."""
        self._jobs[job.key] = job
        self._turns.add(job)
        self._shares.enter(job.client)
        self._open += job.open

    def cancel(self, key: int) -> Released | None:
        """End a request. No later step computes any of it.

        Returns:
            `Released` if no text of it has started. Otherwise None, and `Released` comes with the next `Work`.
        """
        job = self._jobs[key]
        freed = self._drop(job)
        released = Released("embedding" if job.started else "queued", 0, freed, job.computed)
        if not job.started:
            return released
        self._outbox.news.append((key, released))
        return None

    def demand(self) -> Demand:
        """Return the demand: a bulk step while there are requests."""
        return Demand(urgent=False, bulk=bool(self._jobs))

    def plan(self, turn: Turn | None, *, contended: bool) -> Work[EmbeddingPlan]:
        """Return the next work. Its step is smaller while other lanes wait for it."""
        while self._dropped:
            heapq.heappush(self._free, self._dropped.pop())
        outbox, self._outbox = self._outbox, Outbox()
        plan = None if turn is None else self._next_step(hurried=contended)
        return Work(tuple(outbox.changes), outbox.take_news(), plan)

    def follow_up(self, plan: EmbeddingPlan, result: EmbeddingStepResult) -> None:
        """Return None: each step has other texts."""

    def apply(self, plan: EmbeddingPlan, result: EmbeddingStepResult) -> News:
        """Process the result of a step and return the news. A step is aborted only if all its members have ended."""
        cancelled = self.in_step.end()
        self._count(plan, result)
        if result.outcome is not Outcome.DONE:
            return []
        self._outbox.count_wasted(cancelled, ((chunk.text, chunk.count) for chunk in plan))
        news: News = []
        vectors = iter(result.vectors)
        for chunk in plan:
            vector = next(vectors) if chunk.last else None
            text = chunk.text
            if self._running.get(chunk.seq_id) is not text:  # cancelled during the step
                continue
            text.computed += chunk.count
            text.job.computed += chunk.count
            if chunk.last:
                self._finish(text, vector, news)
        return news

    def metrics(self) -> EngineMetrics:
        """Return the current state and the counters."""
        if not (self._counters.steps or self._open):
            return NO_METRICS
        places = self._limits.texts
        return EngineMetrics(
            **vars(self._counters),
            embedding_waiting=self._open,
            embedding_running=min(self._open, places),  # between two steps fewer have been started
            embedding_places=places,
        )

    def inspect(self) -> tuple[SlotInfo, ...]:
        """Return no slots, because texts share the cells."""
        return ()

    def held(self) -> Iterator[HeldPrefix]:
        """Return no prefixes, because texts leave no cells."""
        return iter(())

    def queue(self) -> Iterator[int]:
        """Return no keys, because each request soon has its turn, text by text."""
        return iter(())

    def _next_step(self, *, hurried: bool) -> EmbeddingPlan:
        self._start()
        chunks: list[EmbeddingChunk] = []
        room = min(self._budget.tokens(hurried=hurried), self._limits.rows)
        for text in self._running.values():
            count = min(text.pending, room) if self._limits.splits else text.pending
            if not count or (count > room and chunks):
                break
            chunks.append(EmbeddingChunk(text, count))
            room -= count
        self.in_step.begin({chunk.text: chunk.count for chunk in chunks})
        return tuple(chunks)

    def _start(self) -> None:
        """Start texts in turns while there is room."""
        while self._free and (job := self._turns.first):
            if not self._has_cells(len(job.waiting[0].tokens)):
                return
            text = job.waiting.popleft()
            self._turns.take(again=bool(job.waiting))
            self._turns.begin(job, text, len(text.tokens))
            text.seq_id = heapq.heappop(self._free)
            self._running[text.seq_id] = text
            if not job.started:
                self._shares.leave(job.client)
            job.started = True

    def _has_cells(self, tokens: int) -> bool:
        """Return whether a text of so many tokens has room beside the running ones. One that runs alone gets more."""
        if not self._running:
            self.cells = max(self.cells, self._limits.cells_for(tokens))
        return sum(len(text.tokens) for text in self._running.values()) + tokens <= self.cells

    def _finish(self, text: EmbeddingText, vector: bytes | None, news: News) -> None:
        job = text.job
        del self._running[text.seq_id]
        self._turns.end(text)
        heapq.heappush(self._free, text.seq_id)
        if vector is None:
            self._fail(job, "the model gave no numbers for a text")
            return
        news.append((job.key, Embedded(text.index, vector)))
        self._counters.embeddings += 1
        job.open -= 1
        self._open -= 1
        if not job.open:
            del self._jobs[job.key]

    def _fail(self, job: EmbeddingJob, message: str) -> None:
        self._drop(job)
        self._outbox.news.append((job.key, Failed(message, "engine_failed")))

    def _drop(self, job: EmbeddingJob) -> int:
        """Remove a request with its texts. Return the number of cells that it held."""
        del self._jobs[job.key]
        self._turns.discard(job)
        if not job.started:
            self._shares.leave(job.client)
        self._open -= job.open
        held = [text for text in self._running.values() if text.job is job]
        for text in held:
            del self._running[text.seq_id]
            text.wasted = self.in_step.leave(text, job.key)
            self._turns.end(text)
            self._dropped.append(text.seq_id)
            self._outbox.changes.append(Removal(text.seq_id, 0))
        return sum(text.computed for text in held)

    def _count(self, plan: EmbeddingPlan, result: EmbeddingStepResult) -> None:
        self._counters.count_step(result.outcome)
        if result.outcome is Outcome.DONE:
            tokens = sum(chunk.count for chunk in plan)
            self._counters.embedding_tokens += tokens
            self._budget.observe(tokens, result.seconds)
