"""Lane of the embedding requests."""

import logging
from collections import deque
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
    """Runs an embedder, which is opened before the first request is queued, and a larger one before a longer text is.

    That takes seconds where there are many cells. So it is work of the intake, which no step and no cancel waits for.
    """

    def __init__(
        self,
        scheduler: EmbeddingScheduler,
        open_embedder: Callable[[int], Embedder],
        model: Model,
        limits: EmbeddingLimits,
        on_progress: Callable[[], None],
    ) -> None:
        """Create the lane.

        Args:
            scheduler: plans the steps.
            open_embedder: opens an embedder with a number of cells. If it raises `LoadError`, it is called again for
                the next request.
            model: the model.
            limits: the limits of the scheduler.
            on_progress: called now and then during a long step.
        """
        self._scheduler = scheduler
        self._open_embedder = open_embedder
        self._model = model
        self._limits = limits
        self._on_progress = on_progress
        self._opened_cells = 0
        self._embedders: deque[tuple[int, Embedder]] = deque()
        """Each with more cells than the one before. The first one is in use."""

    @property
    @override
    def scheduler(self) -> EmbeddingScheduler:
        return self._scheduler

    @override
    def admit(self, key: int, request: EmbeddingRequest) -> Slices[EmbeddingJob]:
        job = yield from admit_embedding(key, request, self._model, self._limits)
        cells = self._limits.cells_for(max(job.prompt_tokens))
        if cells > self._opened_cells:
            yield Effort.OPEN
            self._open(cells)
        return job

    @override
    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:
        """Drop the cells of unfinished texts, and replace an embedder that has too few for the step that comes.

        This always succeeds, so there is no result for the scheduler.
        """
        for change in changes:
            if isinstance(change, Removal):
                self._embedder.drop(change.seq_id)
        while self._embedders and self._embedders[0][0] < self._scheduler.cells:
            _, small = self._embedders.popleft()
            small.shut_down()

    @override
    def arm(self) -> None:
        self._embedder.arm()

    @override
    def run(self, plan: EmbeddingPlan) -> EmbeddingStepResult:
        return self._embedder.run(plan)

    @override
    def needs_all_cores(self, plan: EmbeddingPlan) -> bool:
        return False

    @override
    def abort(self) -> None:
        if self._embedders:
            self._embedder.abort()

    @property
    def _embedder(self) -> Embedder:
        """The embedder in use. There is one before the first request is queued."""
        return self._embedders[0][1]

    def _open(self, cells: int) -> None:
        """Open an embedder with so many cells, unless an earlier request has.

        Raises:
            EngineFault: There is not enough memory.
        """
        if cells <= self._opened_cells:
            return
        try:
            embedder = self._open_embedder(cells)
        except LoadError as error:
            logger.warning("an embedder cannot be opened, and a request fails", extra={"why": error.message})
            raise EngineFault(error.message, code="engine_failed") from error
        embedder.on_progress = self._on_progress
        self._embedders.append((cells, embedder))
        self._opened_cells = cells
