"""The lane of requests that continue texts."""

import logging
from collections.abc import Iterable
from threading import Lock

from engine.core.group import SequenceGroup
from engine.core.model import Model
from engine.core.scheduler import Scheduler
from engine.core.step import Change, Close, Runner, StepPlan, StepResult, carry_out
from engine.request import GenerationRequest
from engine.worker.admission import admit

logger = logging.getLogger(__name__)


class GenerationLane:
    """Drives a runner. See `engine.worker.lanes.lane.Lane`."""

    def __init__(self, scheduler: Scheduler, runner: Runner, model: Model) -> None:
        self.scheduler = scheduler
        self._runner = runner
        self._model = model

    def admit(self, key: int, request: GenerationRequest) -> SequenceGroup:
        """Tokenise and check a request."""
        return admit(key, request, self._model)

    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:
        """Let the runner change cells; the scheduler learns which prefixes could not be saved."""
        if lost := carry_out(changes, self._runner):
            with lock:
                self.scheduler.drop_unsaved(lost)
        for change in changes:
            if isinstance(change, Close):
                ended = change.sequence
                fields = {"request_id": ended.request.id, "choice": ended.choice, "tokens": ended.generated}
                logger.debug("sequence ended", extra=fields)

    def arm(self) -> None:
        """Forget an earlier `abort`."""
        self._runner.arm()

    def run(self, plan: StepPlan) -> StepResult:
        """Make one pass."""
        return self._runner.run(plan)

    def abort(self) -> None:
        """End the pass that runs now."""
        self._runner.abort()
