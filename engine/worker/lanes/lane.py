"""The contract between a kind of request and what serves all kinds: the intake and the step loop."""

from collections.abc import Iterable
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar

from engine.core.lane import Job, LaneScheduler
from engine.core.step import Change

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
JobT = TypeVar("JobT", bound=Job)
PlanT = TypeVar("PlanT")
ResultT = TypeVar("ResultT")


class Lane(Protocol[RequestT_contra, JobT, PlanT, ResultT]):
    """Serves one kind of request: its scheduler decides, the lane carries out."""

    @property
    def scheduler(self) -> LaneScheduler[JobT, PlanT, ResultT]:
        """Owns the requests. Guarded by the step loop's lock."""

    def admit(self, key: int, request: RequestT_contra) -> JobT:
        """Tokenise and check a request. For the intake's thread; may take long.

        Raises:
            RequestError: for a request that can never be served.
        """

    def carry_out(self, changes: Iterable[Change], lock: Lock) -> None:
        """Carry out what the scheduler decided, in order. What it has to learn of that is noted under the lock."""

    def arm(self) -> None:
        """Forget an earlier `abort`. Called before a pass, under the lock."""

    def run(self, plan: PlanT) -> ResultT:
        """Make one pass. For the step thread.

        Raises:
            LoadError: where there is no memory for what makes the pass. The lane's requests fail, other lanes go on.
            Exception: any other one says that the model can no longer be trusted: the process must end.
        """

    def abort(self) -> None:
        """End the pass that runs now, or the next one unless `arm` comes first. For any thread, under the lock."""


AnyLane: TypeAlias = Lane[Any, Any, Any, Any]
"""A lane among others. Each has its own types of requests, jobs, plans and results."""
