"""Lane of the embedding requests."""

import logging
from collections.abc import Callable, Iterable
from threading import Lock

from typing_extensions import override

from engine.core.embedding.scheduler import EmbeddingScheduler
from engine.core.embedding.step import Embedder, EmbeddingJob, EmbeddingLimits, EmbeddingPlan, EmbeddingStepResult
from engine.core.kv.cell_changes import Removal
from engine.core.model import Model
from engine.core.step import Change
from engine.errors import EngineFault, LoadError
from engine.request import EmbeddingRequest
from engine.worker.embedding_admission import admit_embedding
from engine.worker.lanes.lane import Lane
from engine.worker.slices import Effort, Slices

logger = logging.getLogger(__name__)


class EmbeddingLane(Lane[EmbeddingRequest, EmbeddingJob, EmbeddingPlan, EmbeddingStepResult]):
    """Runs an embedder, which the first request opens before it is queued.

    That takes seconds where the context is large. So it is work of the intake, which no step and no cancel waits for.
    """

    def __init__(
        self,
        scheduler: EmbeddingScheduler,
        open_embedder: Callable[[], Embedder],
        model: Model,
        limits: EmbeddingLimits,
    ) -> None:
        """Create the lane. If `open_embedder` raises `LoadError`, it is called again for the next request."""
        self._scheduler = scheduler
        self._open_embedder = open_embedder
        self._model = model
        self._limits = limits
        self._embedder: Embedder | None = None

    @property
    @override
    def scheduler(self) -> EmbeddingScheduler:
        return self._scheduler

    @override
    def admit(self, key: int, request: EmbeddingRequest) -> Slices[EmbeddingJob]:
        job = yield from admit_embedding(key, request, self._model, self._limits)
        if self._embedder is None:
            yield Effort.OPEN
            self._open()
        return job

    @override
    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:
        """Drop the cells of unfinished texts. This always succeeds, so there is no result for the scheduler."""
        for change in changes:
            if isinstance(change, Removal) and self._embedder is not None:
                self._embedder.drop(change.seq_id)

    @override
    def arm(self) -> None:
        if self._embedder is not None:
            self._embedder.arm()

    @override
    def run(self, plan: EmbeddingPlan) -> EmbeddingStepResult:
        if self._embedder is None:
            raise EngineFault("an embedding step was planned before its embedder was opened", code="internal_error")
        return self._embedder.run(plan)

    @override
    def needs_all_cores(self, plan: EmbeddingPlan) -> bool:
        return False

    @override
    def abort(self) -> None:
        if self._embedder is not None:
            self._embedder.abort()

    def _open(self) -> None:
        """Open the embedder, unless an earlier request has.

        Raises:
            EngineFault: There is not enough memory.
        """
        if self._embedder is not None:
            return
        try:
            self._embedder = self._open_embedder()
        except LoadError as error:
            logger.warning("the embedder cannot be opened, and a request fails", extra={"why": error.message})
            raise EngineFault(error.message, code="engine_failed") from error
