"""The engine's errors as they cross between the processes."""

from typing import Self

from msgspec import Struct, field

from engine.errors import Busy, EngineError, EngineFault, RequestError, Unavailable

_KINDS: dict[str, type[EngineError]] = {kind.__name__: kind for kind in (RequestError, Busy, Unavailable)}


class Fault(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An error in a message."""

    kind: str
    """Name of its class in `engine.errors`."""
    message: str
    """`EngineError.message`."""
    code: str | None = None
    """`EngineError.code`."""
    param: str | None = None
    """`EngineError.param`."""
    figures: dict[str, int] = field(default_factory=dict)
    """`EngineError.figures`."""

    @classmethod
    def of(cls, error: EngineError) -> Self:
        """Return an error as it crosses."""
        return cls(type(error).__name__, error.message, error.code, error.param, dict(error.figures))

    def error(self, retry_after: float | None = None) -> EngineError:
        """Return the exception, an `EngineFault` if its class is unknown. A busy engine may know `retry_after`."""
        kind = _KINDS.get(self.kind, EngineFault)
        wait = retry_after if kind is Busy else None
        return kind(self.message, code=self.code, param=self.param, retry_after=wait, figures=self.figures)
