"""The lane of requests that turn texts into vectors."""

from collections.abc import Callable, Iterable
from threading import Lock

from engine.core.embedding.scheduler import EmbeddingScheduler
from engine.core.embedding.step import Embedder, EmbeddingJob, EmbeddingLimits, EmbeddingPlan, EmbeddingStepResult
from engine.core.model import Model
from engine.core.step import Change, Removal
from engine.request import EmbeddingRequest
from engine.worker.admission import admit_embedding


class EmbeddingLane:
    """Drives an embedder, which is opened for the first pass. See `engine.worker.lanes.lane.Lane`."""

    def __init__(
        self,
        scheduler: EmbeddingScheduler,
        open_embedder: Callable[[], Embedder],
        model: Model,
        limits: EmbeddingLimits,
    ) -> None:
        """Embed with what `open_embedder` returns. After a `LoadError` it is called again for the next pass."""
        self.scheduler = scheduler
        self._open_embedder = open_embedder
        self._model = model
        self._limits = limits
        self._embedder: Embedder | None = None
        self._aborted = False

    def admit(self, key: int, request: EmbeddingRequest) -> EmbeddingJob:
        """Tokenise and check a request."""
        return admit_embedding(key, request, self._model, self._limits)

    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:  # noqa: ARG002 - dropping cells always succeeds
        """Drop the cells of texts that will not be finished."""
        for change in changes:
            if isinstance(change, Removal) and self._embedder is not None:
                self._embedder.drop(change.seq_id)

    def arm(self) -> None:
        """Forget an earlier `abort`."""
        self._aborted = False
        if self._embedder is not None:
            self._embedder.arm()

    def run(self, plan: EmbeddingPlan) -> EmbeddingStepResult:
        """Make one pass."""
        if self._embedder is None:
            self._embedder = self._open_embedder()
            if self._aborted:  # while the embedder was opened
                self._embedder.abort()
        return self._embedder.run(plan)

    def abort(self) -> None:
        """End the pass that runs now."""
        self._aborted = True
        if self._embedder is not None:
            self._embedder.abort()
