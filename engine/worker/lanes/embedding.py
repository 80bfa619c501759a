"""Lane of the embedding requests."""

from collections.abc import Callable, Iterable
from threading import Lock

from typing_extensions import override

from engine.core.embedding.scheduler import EmbeddingScheduler
from engine.core.embedding.step import Embedder, EmbeddingJob, EmbeddingLimits, EmbeddingPlan, EmbeddingStepResult
from engine.core.kv.cell_changes import Removal
from engine.core.model import Model
from engine.core.step import Change
from engine.request import EmbeddingRequest
from engine.worker.embedding_admission import admit_embedding
from engine.worker.lanes.lane import Lane
from engine.worker.slices import Slices


class EmbeddingLane(Lane[EmbeddingRequest, EmbeddingJob, EmbeddingPlan, EmbeddingStepResult]):
    """Runs an embedder, which is opened for the first step."""

    def __init__(
        self,
        scheduler: EmbeddingScheduler,
        open_embedder: Callable[[], Embedder],
        model: Model,
        limits: EmbeddingLimits,
    ) -> None:
        """Create the lane. If `open_embedder` raises `LoadError`, it is called again for the next step."""
        self._scheduler = scheduler
        self._open_embedder = open_embedder
        self._model = model
        self._limits = limits
        self._embedder: Embedder | None = None
        self._aborted = False

    @property
    @override
    def scheduler(self) -> EmbeddingScheduler:
        return self._scheduler

    @override
    def admit(self, key: int, request: EmbeddingRequest) -> Slices[EmbeddingJob]:
        return admit_embedding(key, request, self._model, self._limits)

    @override
    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:
        """Drop the cells of unfinished texts. This always succeeds, so there is no result for the scheduler."""
        for change in changes:
            if isinstance(change, Removal) and self._embedder is not None:
                self._embedder.drop(change.seq_id)

    @override
    def arm(self) -> None:
        self._aborted = False
        if self._embedder is not None:
            self._embedder.arm()

    @override
    def run(self, plan: EmbeddingPlan) -> EmbeddingStepResult:
        if self._embedder is None:
            self._embedder = self._open_embedder()
            if self._aborted:  # while the embedder was opened
                self._embedder.abort()
        return self._embedder.run(plan)

    @override
    def needs_all_cores(self, plan: EmbeddingPlan) -> bool:
        return False

    @override
    def abort(self) -> None:
        self._aborted = True
        if self._embedder is not None:
            self._embedder.abort()
