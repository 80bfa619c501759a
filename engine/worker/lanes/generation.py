"""Lane of the generation requests."""

import logging
from collections.abc import Iterable
from threading import Lock

from typing_extensions import override

from engine.core.changes import carry_out
from engine.core.group import SequenceGroup
from engine.core.model import Model
from engine.core.scheduler import Scheduler
from engine.core.step import Change, Close, Runner, StepPlan, StepResult
from engine.request import GenerationRequest
from engine.worker.admission import admit
from engine.worker.lanes.lane import Lane
from engine.worker.slices import Slices
from engine.worker.slot_states import SlotStates

logger = logging.getLogger(__name__)


class GenerationLane(Lane[GenerationRequest, SequenceGroup, StepPlan, StepResult]):
    """Runs a runner on the plans of its scheduler."""

    def __init__(self, scheduler: Scheduler, runner: Runner, model: Model, speculation: bool | None) -> None:
        """Create the lane.

        Args:
            scheduler: plans the steps.
            runner: runs the steps.
            model: the model.
            speculation: the value of `speculative` for requests that do not set it.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._model = model
        self._speculation = speculation
        self.slot_states = SlotStates(scheduler.ledger, runner, model.info.vocabulary)
        """Cells of the free slots."""

    @property
    @override
    def scheduler(self) -> Scheduler:
        return self._scheduler

    @override
    def admit(self, key: int, request: GenerationRequest) -> Slices[SequenceGroup]:
        if request.speculative is None:
            request = request.replaced(speculative=self._speculation)
        return admit(key, request, self._model)

    @override
    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:
        """Apply changes with the runner. Under the lock, the scheduler drops the prefixes that could not be saved."""
        if lost := carry_out(changes, self._runner):
            with lock:
                self._scheduler.drop_unsaved(lost)
        for change in changes:
            if isinstance(change, Close):
                ended = change.sequence
                fields = {"request_id": ended.request.id, "choice": ended.choice, "tokens": ended.generated}
                logger.debug("sequence ended", extra=fields)

    @override
    def arm(self) -> None:
        self._runner.arm()

    @override
    def run(self, plan: StepPlan) -> StepResult:
        return self._runner.run(plan)

    @override
    def needs_all_cores(self, plan: StepPlan) -> bool:
        """Return whether it has one row and takes every core: its threads wait for each other every few microseconds.

        In steps of several rows the difference is too small to be measured.
        """
        return self._model.traits.uses_all_cores and plan.tokens == 1

    @override
    def abort(self) -> None:
        self._runner.abort()
