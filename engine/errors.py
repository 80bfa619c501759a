"""Errors of a request, by whose fault they are."""


class EngineError(Exception):
    """Base of all failures that the engine reports."""

    message: str
    """One sentence for the caller."""
    code: str | None
    """A stable name for programs (`context_length_exceeded`), or None."""
    param: str | None
    """The field of the request that is at fault, or None."""

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class RequestError(EngineError):
    """The request's fault: it can never succeed as it stands."""


class Busy(EngineError):
    """Temporary: the queue is full or the wait was too long. The same request may succeed later."""


class Unavailable(EngineError):
    """Temporary: the engine is loading, restarting or shutting down. The same request may succeed later."""


class EngineFault(EngineError):
    """Our fault: the engine failed on this request or died during it."""


class LoadError(EngineError):
    """The operator's fault: the model cannot be loaded as configured. Restarting would not help."""


class SlowReader(EngineError):
    """The client's fault: it read its text too slowly, and its request was cancelled."""
