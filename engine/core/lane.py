"""The contract between the step loop and the scheduler of one kind of request."""

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from engine.core.step import Change
from engine.core.turns import Demand, Turn
from engine.events import EngineMetrics, Event, Released, SlotInfo

News: TypeAlias = list[tuple[int, Event]]
"""Events of a moment, each with the key of its request."""

RowT = TypeVar("RowT")
PlanT = TypeVar("PlanT")


@dataclass(frozen=True, slots=True)
class Work(Generic[PlanT]):
    """What the step loop does next for a lane, in this order."""

    changes: tuple[Change, ...]
    """What to do to cells, and what to free, in order."""
    news: News
    """What is true once that is done."""
    plan: PlanT | None
    """The pass to make then."""


@dataclass(slots=True)
class Outbox:
    """What the next `Work` carries for requests that are over."""

    changes: list[Change] = field(default_factory=list)
    news: News = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.changes or self.news)


class PassMembers(Generic[RowT]):
    """Those for whom the pass under way is made, without those that have ended since it was planned."""

    def __init__(self) -> None:
        self._left: set[RowT] | None = None
        self._planned = 0

    @property
    def abandoned(self) -> bool:
        """Whether a pass is under way in which every member has ended."""
        return self._left is not None and not self._left

    @property
    def complete(self) -> bool:
        """Whether a pass is planned or under way, and no member has ended."""
        return self._left is not None and len(self._left) == self._planned

    def begin(self, members: set[RowT]) -> None:
        """Note a pass that is planned, and keep the set."""
        self._left = members
        self._planned = len(members)

    def leave(self, member: RowT) -> None:
        """Note that a member has ended, if it is one."""
        if self._left is not None:
            self._left.discard(member)

    def end(self) -> None:
        """Note that no pass is under way."""
        self._left = None


class Job(Protocol):
    """A request that was tokenised and checked."""

    @property
    def key(self) -> int:
        """Names the request on the wire."""

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """Tokens of each prompt or input."""


JobT_contra = TypeVar("JobT_contra", bound=Job, contravariant=True)
ResultT_contra = TypeVar("ResultT_contra", contravariant=True)


class LaneScheduler(Protocol[JobT_contra, PlanT, ResultT_contra]):
    """Owns every request of a lane from its acceptance to its end. Its caller guards it by a lock."""

    @property
    def busy(self) -> bool:
        """Whether there is work: without it the step loop sleeps."""

    @property
    def in_pass(self) -> PassMembers[Any]:
        """Those for whom the pass under way is made."""

    def __contains__(self, key: int) -> bool:
        """Return whether it owns a request."""

    def check_room(self) -> None:
        """Raise `Busy` when the queue is full."""

    def add(self, job: JobT_contra) -> None:
        """Queue a request, for which there is room."""

    def cancel(self, key: int) -> Released | None:
        """End a request that it owns; no later pass carries it.

        Returns `Released` when the request never held anything; else None, and `Released` comes with the next `Work`.
        """

    def fail_all(self, message: str) -> None:
        """End every request, because the pass under way could not be made. `Failed` comes with the next `Work`."""

    def demand(self) -> Demand:
        """Start what there is room for; return the kinds of passes that could be made now."""

    def plan(self, turn: Turn | None, *, contended: bool) -> Work[PlanT]:
        """Return what to do next. Follows `demand` under one hold of the lock.

        Args:
            turn: the kind of pass to make, for which there is demand; None leaves the pass to another lane. The pass is
                under way until `apply` or `fail_all`, unless it is dropped and another one is planned.
            contended: whether other lanes wait for the pass.
        """

    def apply(self, plan: PlanT, result: ResultT_contra) -> News:
        """Take a pass's result; return the news."""

    def metrics(self) -> EngineMetrics:
        """Return the state and the counters of this moment; what is not the lane's is 0."""

    def inspect(self) -> tuple[SlotInfo, ...]:
        """Return the slots that its requests lease."""
