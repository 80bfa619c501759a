"""The step loop: plan, run, apply, one frame out; and what other threads may do to it between and during passes."""

import logging
import threading
from collections.abc import Callable, Iterable

from engine.core.embedding.scheduler import EmbeddingScheduler
from engine.core.embedding.step import Embedder, EmbeddingJob
from engine.core.group import SequenceGroup
from engine.core.scheduler import Scheduler
from engine.core.sequence import Sequence
from engine.core.step import Runner, StepPlan, carry_out
from engine.errors import LoadError
from engine.events import Event, Figures, SlotInfo

logger = logging.getLogger(__name__)

Publish = Callable[[Iterable[tuple[int, Event]], Figures], None]


class StepLoop:
    """Drives a runner and an embedder by their schedulers. `run` belongs to one thread; the rest may come from any.

    The lock guards both schedulers and is never held during a pass, so a cancel or a question waits for no decode.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        embeddings: EmbeddingScheduler,
        open_embedder: Callable[[], Embedder],
        publish: Publish,
    ) -> None:
        """`open_embedder` is called when the first text is to be embedded, and again after it has raised `LoadError`.

        `publish` takes all news of a moment and the figures of the same moment; it may be called from any thread.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._embeddings = embeddings
        self._open_embedder = open_embedder
        self._embedder: Embedder | None = None
        self._publish = publish
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._stopped = False

    def check_room(self) -> None:
        """Raises `Busy` when the queue of generations is full."""
        with self._lock:
            self._scheduler.check_room()

    def check_embedding_room(self) -> None:
        """Raises `Busy` when the queue of texts to embed is full."""
        with self._lock:
            self._embeddings.check_room()

    def add(self, group: SequenceGroup, accept: Callable[[], None]) -> None:
        """Queue a request; `accept` tells of it before anything else can. Raises `Busy` when the queue is full."""
        with self._lock:
            self._scheduler.check_room()
            accept()
            self._scheduler.add(group)
            self._wake.notify()

    def add_embedding(self, job: EmbeddingJob, accept: Callable[[], None]) -> None:
        """Queue texts to embed, as `add` does."""
        with self._lock:
            self._embeddings.check_room()
            accept()
            self._embeddings.add(job)
            self._wake.notify()

    def cancel(self, key: int) -> None:
        """End a request. If that leaves nobody in the pass under way, the pass is aborted."""
        with self._lock:
            released = self._embeddings.cancel(key) if key in self._embeddings else self._scheduler.cancel(key)
            if self._scheduler.abandoned:
                self._runner.abort()
            if self._embeddings.abandoned and self._embedder is not None:
                self._embedder.abort()
            figures = self._figures()
            self._wake.notify()
        if released is not None:
            self._publish([(key, released)], figures)

    def figures(self) -> Figures:
        """The figures of this moment."""
        with self._lock:
            return self._figures()

    def inspect(self) -> tuple[tuple[SlotInfo, ...], Figures]:
        """Every slot, and the figures of the same moment."""
        with self._lock:
            return self._scheduler.inspect(), self._figures()

    def stop(self) -> None:
        """End `run`: the pass under way is aborted and what runs is left as it is."""
        with self._lock:
            self._stopped = True
            self._runner.abort()
            if self._embedder is not None:
                self._embedder.abort()
            self._wake.notify()

    def run(self) -> None:
        """Step while there is work, sleep while there is none, return when stopped.

        Raises what the runner or the embedder raises: then the model can no longer be trusted.
        """
        while self._step():
            pass

    def _step(self) -> bool:
        with self._lock:
            while not (self._scheduler.busy or self._embeddings.busy or self._embeddings.parting or self._stopped):
                self._wake.wait()
            if self._stopped:
                return False
            embeds = self._embeddings.busy
            work = self._scheduler.plan(embeds=embeds)
            dropped, partings = self._embeddings.part()
            figures = self._figures()
        if lost := carry_out(work.changes, self._runner):
            with self._lock:
                self._scheduler.lose(lost)
        self._drop(dropped)
        for sequence in work.ended:
            self._end(sequence)
        if news := [*work.news, *partings]:
            self._publish(news, figures)
        if work.plan is not None:
            self._generate(work.plan)
        elif embeds:
            self._embed()
        return True

    def _generate(self, plan: StepPlan) -> None:
        if not self._arm():
            return
        result = self._runner.run(plan)
        with self._lock:
            news = self._scheduler.apply(plan, result)
            figures = self._figures()
        self._publish(news, figures)

    def _arm(self) -> bool:
        """The last look before a pass: whoever was cancelled since it was planned is not carried in it."""
        with self._lock:
            self._runner.arm()
            return self._scheduler.intact and not self._stopped

    def _embed(self) -> None:
        """Make one pass for those who still wait for it. The embedder is made for the first of them."""
        try:
            embedder = self._embedder = self._embedder or self._open_embedder()
        except LoadError as error:
            self._fail_embeddings(error.message)
            return
        with self._lock:
            chunks = self._embeddings.plan(hurried=self._scheduler.figures().held > 0)
            if not chunks or self._stopped:
                return
            embedder.arm()
        result = embedder.run(chunks)
        with self._lock:
            news = self._embeddings.apply(chunks, result)
            figures = self._figures()
        self._publish(news, figures)

    def _fail_embeddings(self, why: str) -> None:
        logger.error("nothing can be embedded", extra={"why": why})
        with self._lock:
            news = self._embeddings.fail_all(why)
            figures = self._figures()
        self._publish(news, figures)

    def _drop(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            if self._embedder is not None:
                self._embedder.drop(seq_id)

    def _figures(self) -> Figures:
        return self._embeddings.figures(self._scheduler.figures())

    def _end(self, sequence: Sequence) -> None:
        self._runner.close(sequence)
        fields = {"request_id": sequence.request.id, "choice": sequence.choice, "tokens": sequence.generated}
        logger.debug("sequence ended", extra=fields)
