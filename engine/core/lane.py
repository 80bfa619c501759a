"""The contract between the step loop and the scheduler of one kind of request."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from engine.core.step import Change
from engine.core.turns import Demand, Turn
from engine.events import Event, Released
from engine.info import EngineMetrics, HeldPrefix, SlotInfo

News: TypeAlias = list[tuple[int, Event]]
"""Events in order, each with the key of its request."""

RowT = TypeVar("RowT")
PlanT = TypeVar("PlanT")


@dataclass(frozen=True, slots=True)
class Work(Generic[PlanT]):
    """The next work of the step loop for a lane, in the order of the fields."""

    changes: tuple[Change, ...]
    """Changes of cells, and sequences to close, in order."""
    news: News
    """Events that become true with the changes."""
    plan: PlanT | None
    """The step to run after that, if any."""


@dataclass(slots=True)
class Outbox:
    """Changes and news that wait for the next `Work`."""

    changes: list[Change] = field(default_factory=list)
    """Changes for sequences that have ended."""
    news: News = field(default_factory=list)
    """Events outside the result of a step: starts, failures and releases."""
    wasted: Counter[int] = field(default_factory=Counter)
    """Number of tokens that a step computed for each request that was cancelled during it, by the request's key."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.news)

    def count_wasted(self, cancelled: Mapping[RowT, int], computed: Iterable[tuple[RowT, int]]) -> None:
        """Count the tokens that a step computed for members that were cancelled during it.

        Args:
            cancelled: the members, each with the key of its request.
            computed: every member of the step with the number of its tokens.
        """
        for member, tokens in computed if cancelled else ():
            if (key := cancelled.get(member)) is not None:
                self.wasted[key] += tokens

    def take_news(self) -> News:
        """Return the news. A step that ran during a cancel has ended, so that its releases are complete."""
        if not self.wasted:
            return self.news
        return [
            (key, event.after_step(self.wasted[key]) if isinstance(event, Released) else event)
            for key, event in self.news
        ]


class StepMembers(Generic[RowT]):
    """Members of the current step: its sequences or texts, except those that have ended since it was planned."""

    def __init__(self) -> None:
        self._left: dict[RowT, int] | None = None
        self._planned = 0
        self.ended: dict[RowT, int] = {}
        """Members that have ended since the step was planned, each with the key of its request."""

    @property
    def abandoned(self) -> bool:
        """True if there is a current step and all its members have ended."""
        return self._left is not None and not self._left

    @property
    def complete(self) -> bool:
        """True if there is a current step, planned or running, and no member has ended."""
        return self._left is not None and len(self._left) == self._planned

    def begin(self, members: dict[RowT, int]) -> None:
        """Record a planned step: the members, each with the number of tokens that it computes. Takes over the dict."""
        self._left = members
        self._planned = len(members)
        self.ended = {}

    def leave(self, member: RowT, key: int) -> int:
        """Remove a member of a request that has ended. Return the tokens that the step computes for it; 0 for others.

        Its client pays for them, also if the step is aborted. Otherwise one that always leaves during the first step
        would pay for none, and would be due before all others for ever.
        """
        if self._left is None or member not in self._left:
            return 0
        self.ended[member] = key
        return self._left.pop(member)

    def end(self) -> dict[RowT, int]:
        """Record the end of the step. Return the members that ended before it, each with the key of its request."""
        ended, self.ended = self.ended, {}
        self._left = None
        return ended


class Job(Protocol):
    """A tokenised and validated request."""

    @property
    def key(self) -> int:
        """Identifies the request in the frames between the processes."""

    @property
    def client(self) -> str:
        """Client that shares the queue with others."""

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """Number of tokens of each prompt or input."""


JobT_contra = TypeVar("JobT_contra", bound=Job, contravariant=True)
ResultT_contra = TypeVar("ResultT_contra", contravariant=True)


class LaneScheduler(Protocol[JobT_contra, PlanT, ResultT_contra]):
    """Owns every request of a lane from its admission to its end. Its caller guards it by a lock."""

    @property
    def busy(self) -> bool:
        """True if there is work. Without work the step loop sleeps."""

    @property
    def in_step(self) -> StepMembers[Any]:
        """The members of the current step."""

    def __contains__(self, key: int) -> bool:
        """Return whether the scheduler owns a request."""

    def check_room(self, client: str) -> None:
        """Check that one more request of a client may wait.

        Raises:
            Busy: the queue is full, or its rest is kept for other clients.
        """

    def add(self, job: JobT_contra) -> None:
        """Append a request to the queue. `check_room` comes first."""

    def cancel(self, key: int) -> Released | None:
        """End a request that the scheduler owns. No later step computes any of it.

        Returns:
            `Released` if the request never held memory. Otherwise None, and `Released` comes with the next `Work`.
        """

    def demand(self) -> Demand:
        """Start requests for which there is room. Return the kinds of steps that are possible now."""

    def plan(self, turn: Turn | None, *, contended: bool) -> Work[PlanT]:
        """Return the next work. Call it after `demand`, without releasing the lock between them.

        Args:
            turn: the kind of step to plan, for which there is demand; None leaves the step to another lane. The step
                is current until `apply`, unless it is dropped and another one is planned.
            contended: whether other lanes wait for the step.
        """

    def follow_up(self, plan: PlanT, result: ResultT_contra) -> PlanT | None:
        """Return the next step, if it is known before `apply`, which then comes while it runs; else None.

        Call it before `apply`, if no other lane has work. The next step continues the current one: no member of it has
        ended, and no change of cells comes before it.
        """

    def apply(self, plan: PlanT, result: ResultT_contra) -> News:
        """Process the result of a step and return the news."""

    def metrics(self) -> EngineMetrics:
        """Return the current state and the counters. Fields of other lanes are 0."""

    def queue(self) -> Iterator[int]:
        """Return the keys of the requests that wait for a slot, in the order in which they will start.

        The order is an estimate. Only the call needs the lock; the iteration does not.
        """

    def inspect(self) -> tuple[SlotInfo, ...]:
        """Return the current state of the slots that the lane's requests lease."""

    def held(self) -> Iterator[HeldPrefix]:
        """Return the prefixes that can be reused, the last ones used first. Only the call needs the lock."""
