"""Terms on which models are in memory, and the decisions about them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from engine.errors import EngineError, LoadError, Unavailable
from gateway.residency.memory import Memory


class Phase(StrEnum):
    """Phase of a model. A model that is not `UNLOADED` counts against the budget."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """Terms of one model."""

    name: str
    """Name of the model."""
    need: Memory
    """Estimate of the bytes that it takes."""
    keep_loaded: bool = False
    """True to load it at the start, and to unload it neither for idleness nor for another model."""
    load_at_start: bool = False
    """True to load it at the start."""
    idle_unload: float | None = None
    """Seconds without a request after which it is unloaded; unset keeps it until another model needs its room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencyLimits:
    """Limits of waiting, swapping and trying again."""

    waiting: int = 256
    """Requests that may wait for models."""
    batch_requests: int = 64
    """Requests that a model may serve from its load on, before another that waits gets its room. Those that waited
    for the load are always served."""
    batch_seconds: float = 10.0
    """Time from its load in which a model serves new requests although another waits for its room."""
    backoff_first: float = 1.0
    """Seconds until a model that failed to load is tried again; doubles with each failure in sequence."""
    backoff_longest: float = 60.0
    """Longest of these times."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A request for one model: it waits for the model and then uses it, until it leaves."""

    model: str
    """Name of the model."""
    turn: int
    """Place among all tickets, in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Load:
    """Start the process of a model, and report `loaded`, or `failed` after its end."""

    model: str
    """Name of the model."""


@dataclass(frozen=True, slots=True)
class Unload:
    """End the process of a model, which may be loading, and report `unloaded` after its end."""

    model: str
    """Name of the model."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Let a request use the model. It holds the model in memory until it leaves."""

    ticket: Ticket
    """The request."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse a request that waits. It has left."""

    ticket: Ticket
    """The request."""
    reason: str
    """Reason, as a sentence."""
    retry_after: float | None
    """Seconds until the model is tried again; unset if it never fits."""

    @property
    def error(self) -> EngineError:
        """Error of the request."""
        if self.retry_after is None:
            return LoadError(self.reason, code="model_too_large")
        return Unavailable(self.reason, code="model_unavailable", retry_after=self.retry_after)


Action: TypeAlias = Load | Unload | Grant | Refuse
