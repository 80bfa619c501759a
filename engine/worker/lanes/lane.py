"""Interface between one kind of request, and the intake and the step loop, which serve all kinds."""

from collections.abc import Iterable
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar

from engine.core.lane import Job, LaneScheduler
from engine.core.step import Change
from engine.worker.slices import Slices

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
JobT = TypeVar("JobT", bound=Job)
PlanT = TypeVar("PlanT")
ResultT = TypeVar("ResultT")


class Lane(Protocol[RequestT_contra, JobT, PlanT, ResultT]):
    """Serves one kind of request: the scheduler plans, the lane executes."""

    @property
    def scheduler(self) -> LaneScheduler[JobT, PlanT, ResultT]:
        """Scheduler of the requests. Guarded by the step loop's lock."""

    def admit(self, key: int, request: RequestT_contra) -> Slices[JobT]:
        """Validate and tokenise a request, and return its job. For the intake threads.

        Raises:
            RequestError: The request can never be served.
            EngineFault: There is not enough memory to open what it needs.
        """

    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:
        """Apply changes of the scheduler in order. Results for the scheduler are recorded under the lock."""

    def arm(self) -> None:
        """Clear an earlier `abort`. Called before a step that follows no other one, under the lock."""

    def run(self, plan: PlanT) -> ResultT:
        """Run one step. For the step thread.

        Raises:
            Exception: The state of the model is undefined, and the process must end.
        """

    def needs_all_cores(self, plan: PlanT) -> bool:
        """Return whether a step takes longer by all that another thread does beside it."""

    def abort(self) -> None:
        """Abort the running step, or the next one unless `arm` is called first. For any thread, under the lock."""


AnyLane: TypeAlias = Lane[Any, Any, Any, Any]
"""Lane of any kind. Each lane has its own types of requests, jobs, plans and results."""
