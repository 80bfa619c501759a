"""Errors of the engine, one class for each responsible party."""

from collections.abc import Mapping


class EngineError(Exception):
    """Base class of the errors that the engine reports."""

    message: str
    """One sentence for the caller."""
    code: str | None
    """Stable identifier for programs (`context_length_exceeded`), or None."""
    param: str | None
    """Invalid field of the request, or None."""
    retry_after: float | None
    """Seconds after which the same request may succeed, as far as it is known."""
    figures: Mapping[str, int]
    """Numbers in the message, by llama-server's names."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        figures: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.figures = figures or {}


class RequestError(EngineError):
    """Invalid request: it can never succeed without a change."""


class Busy(EngineError):
    """Temporary overload: the queue is full or the wait was too long. The same request may succeed later."""


class Unavailable(EngineError):
    """Temporary outage: the engine is loading, restarting or shutting down. The same request may succeed later."""


class EngineFault(EngineError):
    """Internal error: the engine failed on this request or died during it."""


class LoadError(EngineError):
    """Configuration error: the model cannot be loaded as configured. A restart would not help."""


class SlowReader(EngineError):
    """Client error: it read its text too slowly, and its request was cancelled."""


def shutting_down() -> Unavailable:
    """Return the error of a request that comes too late, or that the end of the server cuts."""
    return Unavailable("The server is shutting down.", code="shutting_down")


def lacks_thread(error: RuntimeError) -> bool:
    """Return True if no thread could be started, for which Python has no type, only a message."""
    return str(error) == "can't start new thread"
