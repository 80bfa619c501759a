"""Account of one model: its phase, its users and those that wait for it."""

from dataclasses import dataclass, field

from gateway.residency.memory import Memory
from gateway.residency.terms import ModelTerms, Phase, ResidencyLimits, Ticket


@dataclass(eq=False, slots=True)
class Resident:
    """Account of one model. Its methods record what has happened; `Residency` decides."""

    terms: ModelTerms
    """Terms of the model."""
    need: Memory
    """Bytes that it takes: the estimate, or after a load the measurement."""
    next_need: Memory | None = None
    """Bytes that it takes from its next load on, for which the present one ends; unset if it takes the same."""
    phase: Phase = Phase.UNLOADED
    """Phase of the model."""
    waiting: dict[Ticket, None] = field(default_factory=dict)
    """Requests that wait for it, in order of arrival."""
    users: int = 0
    """Requests that use it."""
    wanted: int | None = None
    """Turn of a load that no request asked for: at the start, or by the operator."""
    yields: bool = False
    """True if another model waits for its room: after its batch it takes no further request."""
    leaves: int | None = None
    """Turn from which on it takes no request, because the operator unloads it, or has replaced its file. It ends after
    the requests before; unset if it stays."""
    granted: int = 0
    """Requests that were granted since it was loaded."""
    loaded_at: float = 0.0
    """Time when it was loaded."""
    idle_unload: float | None = field(init=False)
    """Seconds without a request after which it is unloaded, as its terms or a request have it."""
    used_at: float = 0.0
    """Time when its last request left, or when it was loaded."""
    failure: str = ""
    """Reason why the last load failed; empty if it did not."""
    delay: float = 0.0
    """Seconds from the last failure until it may be tried again; 0 if the last load did not fail."""
    retry_at: float = 0.0
    """Time from which it may be tried again."""

    def __post_init__(self) -> None:
        self.idle_unload = self.terms.idle_unload

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.terms.name

    @property
    def idle(self) -> bool:
        """True if it is loaded and no request uses it."""
        return self.phase is Phase.LOADED and not self.users

    @property
    def used(self) -> bool:
        """True if a request uses it or waits for it."""
        return bool(self.users or self.waiting)

    @property
    def gone(self) -> bool:
        """True if it has no process, no request uses one that was lost, and none is asked for."""
        return self.phase is Phase.UNLOADED and not self.users and self.turn is None

    @property
    def dismissed(self) -> bool:
        """True if it is unloaded as soon as no request uses it or waits for it."""
        return self.wanted is None and (self.leaves is not None or self.phase is not Phase.LOADED)

    @property
    def turn(self) -> int | None:
        """Turn of the oldest request or order that waits for it; unset if none waits."""
        turns = [ticket.turn for ticket in list(self.waiting)[:1]]
        return min([*turns, *([] if self.wanted is None else [self.wanted])], default=None)

    @property
    def idle_until(self) -> float | None:
        """Time at which it is unloaded for idleness; unset if it is not."""
        if self.terms.keep_loaded or self.idle_unload is None or not self.idle:
            return None
        return self.used_at + self.idle_unload

    def overdue(self, now: float) -> bool:
        """Return True if it has been idle for too long."""
        return (end := self.idle_until) is not None and end <= now

    def takes(self, turn: int, limits: ResidencyLimits, now: float) -> bool:
        """Return True if a request with this turn may use it now, while it is loaded."""
        in_batch = self.granted < limits.batch_requests and now < self.loaded_at + limits.batch_seconds
        return (self.leaves is None or turn < self.leaves) and (in_batch or not self.yields)

    def begin(self) -> None:
        """Record that its process starts."""
        self.phase = Phase.LOADING

    def loaded(self, need: Memory, now: float) -> None:
        """Record a load, with the bytes that were measured."""
        self.phase, self.need = Phase.LOADED, need
        self.loaded_at = self.used_at = now
        self.granted, self.wanted, self.failure, self.delay = 0, None, "", 0.0

    def failed(self, reason: str, limits: ResidencyLimits, now: float) -> None:
        """Record a load that failed. Only a model that is kept loaded is tried again without a request."""
        self.unloaded()
        self.failure = reason
        self.delay = min(2 * self.delay or limits.backoff_first, limits.backoff_longest)
        self.retry_at = now + self.delay
        if not self.terms.keep_loaded:
            self.wanted = None

    def unloaded(self) -> None:
        """Record that its process has ended."""
        self.phase, self.leaves, self.yields = Phase.UNLOADED, None, False
        self.need, self.next_need = self.next_need or self.need, None
