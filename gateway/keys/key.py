"""An API key, as the server knows it: without the secret."""

from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """Limits of one key. None sets no limit."""

    requests_per_minute: int | None = None
    """Requests that may begin in a minute."""
    tokens_per_minute: int | None = None
    """Tokens in a minute, computed and generated."""
    concurrent_requests: int | None = None
    """Requests that may run or wait at the same time."""
    tokens_per_day: int | None = None
    """Budget of tokens of a day in UTC."""
    tokens_per_month: int | None = None
    """Budget of tokens of a month in UTC."""


LIMITS = tuple(limit.name for limit in fields(KeyLimits))
"""Names of the limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One API key."""

    id: str
    """Public id, for logs, metrics and usage; the secret cannot be computed from it."""
    name: str
    """Name that the operator gave it."""
    models: frozenset[str] | None = None
    """Names of the models that it may use; None allows all."""
    limits: KeyLimits = field(default_factory=KeyLimits)
    """Limits of its use."""
    weight: float = 1.0
    """Share of the engine, relative to that of other keys."""
    priority: int = 0
    """Priority of its requests that have none of their own. Lower values are served earlier (as in vLLM)."""
    expires_at: float | None = None
    """Time from which it is refused, in seconds since 1970; unset if it does not expire."""

    @property
    def unlimited(self) -> bool:
        """True if it may use all models, as much as it likes: a key of the operator's."""
        return self.models is None and self.limits == KeyLimits()
