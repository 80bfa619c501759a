"""Which texts are embedded in the next pass. Pure, as the scheduler of generations is, and guarded by the same lock."""

import heapq
from collections import OrderedDict
from dataclasses import dataclass, replace

from engine.core.budget import PromptBudget
from engine.core.embedding.step import EmbeddingChunk, EmbeddingJob, EmbeddingLimits, EmbeddingPass, EmbeddingText
from engine.core.step import Outcome
from engine.errors import Busy
from engine.events import Embedded, Event, Failed, Figures, Released

EmbeddingNews = list[tuple[int, Event]]


@dataclass(slots=True)
class _Counters:
    steps: int = 0
    aborted: int = 0
    texts: int = 0
    tokens: int = 0


class EmbeddingScheduler:
    """Owns every embedding request from its acceptance to its end.

    Requests take turns, a text each, so that one of many texts holds up nobody for longer than those under way. What an
    operation costs does not depend on the length of the queue.
    """

    def __init__(self, limits: EmbeddingLimits, *, step_target: float, queue_limit: int) -> None:
        """`step_target` is the seconds a pass may take; `queue_limit` bounds the requests of which nothing started."""
        self._limits = limits
        self._budget = PromptBudget(step_target)
        self._queue_limit = queue_limit
        self._jobs: dict[int, EmbeddingJob] = {}
        self._turns: OrderedDict[int, EmbeddingJob] = OrderedDict()
        self._under_way: dict[int, EmbeddingText] = {}
        self._free = list(range(limits.texts))
        self._in_pass: set[EmbeddingText] | None = None
        self._dropped: list[int] = []
        self._farewell: EmbeddingNews = []
        self._untouched = 0  # requests of which nothing started
        self._open = 0  # texts that have not ended
        self._counters = _Counters()

    @property
    def busy(self) -> bool:
        """Whether there is something to compute."""
        return bool(self._jobs)

    @property
    def parting(self) -> bool:
        """Whether `part` has something to give."""
        return bool(self._dropped or self._farewell)

    @property
    def abandoned(self) -> bool:
        """Whether a pass is under way in which every text has ended since it began."""
        return self._in_pass is not None and not self._in_pass

    def __contains__(self, key: int) -> bool:
        """Whether a request is here."""
        return key in self._jobs

    def check_room(self) -> None:
        """Raises `Busy` when the queue is full."""
        if self._untouched >= self._queue_limit:
            raise Busy(f"{self._queue_limit} requests are waiting already; try again later", code="queue_full")

    def add(self, job: EmbeddingJob) -> None:
        """Queue a request."""
        self._jobs[job.key] = self._turns[job.key] = job
        self._untouched += 1
        self._open += job.open

    def cancel(self, key: int) -> Released | None:
        """End a request; no later pass carries it.

        Gives `Released` when nothing of it was under way; else None, and `Released` comes with the next `part`.
        """
        job = self._jobs[key]
        freed = self._drop(job)
        released = Released("embedding" if job.started else "queued", 0, freed)
        if not job.started:
            return released
        self._farewell.append((key, released))
        return None

    def fail_all(self, message: str) -> EmbeddingNews:
        """End every request: there is no embedder. Gives what there is to tell."""
        jobs = list(self._jobs.values())
        for job in jobs:
            self._drop(job)
        return [(job.key, Failed(message, "engine_failed")) for job in jobs]

    def part(self) -> tuple[list[int], EmbeddingNews]:
        """The `seq_id`s to drop now, before any pass, and what is true once that is done."""
        dropped, self._dropped = self._dropped, []
        for seq_id in dropped:
            heapq.heappush(self._free, seq_id)
        news, self._farewell = self._farewell, []
        return dropped, news

    def plan(self, *, hurried: bool) -> tuple[EmbeddingChunk, ...]:
        """What the next pass computes; it is under way until `apply`. `hurried` while generations wait for it."""
        self._start()
        chunks: list[EmbeddingChunk] = []
        room = min(self._budget.tokens(hurried=hurried), self._limits.rows)
        for text in self._under_way.values():
            count = min(text.pending, room) if self._limits.splits else text.pending
            if not count or (count > room and chunks):
                break
            chunks.append(EmbeddingChunk(text, count))
            room -= count
        self._in_pass = {chunk.text for chunk in chunks}
        return tuple(chunks)

    def apply(self, chunks: tuple[EmbeddingChunk, ...], result: EmbeddingPass) -> EmbeddingNews:
        """Take a pass's result; gives what there is to tell. A pass is aborted only when nobody is left in it."""
        self._in_pass = None
        self._count(chunks, result)
        if result.outcome is not Outcome.DONE:
            return []
        news: EmbeddingNews = []
        vectors = iter(result.vectors)
        for chunk in chunks:
            vector = next(vectors) if chunk.last else None
            text = chunk.text
            if self._under_way.get(chunk.seq_id) is not text:  # cancelled while the pass ran
                continue
            text.computed += chunk.count
            if chunk.last:
                self._finish(text, vector, news)
        return news

    def figures(self, generations: Figures) -> Figures:
        """`generations` with what is done here."""
        counters = self._counters
        return replace(
            generations,
            steps=generations.steps + counters.steps,
            aborted=generations.aborted + counters.aborted,
            embedding_waiting=self._open,
            embeddings=counters.texts,
            embedding_tokens=counters.tokens,
        )

    def _start(self) -> None:
        """Let texts in while there is room, one of each request in turn."""
        cells = self._limits.cells - sum(len(text.tokens) for text in self._under_way.values())
        while self._turns and self._free:
            key, job = next(iter(self._turns.items()))
            if len(job.waiting[0].tokens) > cells:
                return
            text = job.waiting.popleft()
            cells -= len(text.tokens)
            text.seq_id = heapq.heappop(self._free)
            self._under_way[text.seq_id] = text
            self._untouched -= not job.started
            job.started = True
            self._turns.move_to_end(key)
            if not job.waiting:
                del self._turns[key]

    def _finish(self, text: EmbeddingText, vector: bytes | None, news: EmbeddingNews) -> None:
        job = text.job
        del self._under_way[text.seq_id]
        heapq.heappush(self._free, text.seq_id)
        if vector is None:
            self._drop(job)
            self._farewell.append((job.key, Failed("the model gave no numbers for a text", "engine_failed")))
            return
        news.append((job.key, Embedded(text.index, vector)))
        self._counters.texts += 1
        job.open -= 1
        self._open -= 1
        if not job.open:
            del self._jobs[job.key]

    def _drop(self, job: EmbeddingJob) -> int:
        """Take a request out of everything; gives the number of cells it held."""
        del self._jobs[job.key]
        self._turns.pop(job.key, None)
        self._untouched -= not job.started
        self._open -= job.open
        held = [text for text in self._under_way.values() if text.job is job]
        for text in held:
            del self._under_way[text.seq_id]
            self._dropped.append(text.seq_id)
            if self._in_pass is not None:
                self._in_pass.discard(text)
        return sum(text.computed for text in held)

    def _count(self, chunks: tuple[EmbeddingChunk, ...], result: EmbeddingPass) -> None:
        self._counters.steps += 1
        self._counters.aborted += result.outcome is Outcome.ABORTED
        if result.outcome is Outcome.DONE:
            tokens = sum(chunk.count for chunk in chunks)
            self._counters.tokens += tokens
            self._budget.observe(tokens, result.seconds)
