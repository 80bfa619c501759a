"""What can go wrong with a request, sorted by whose fault it is."""


class EngineError(Exception):
    """Any failure the engine reports.

    Attributes:
        message: one sentence for the person who sent the request.
        code: a stable name for programs (`context_length_exceeded`), or None.
        param: the request's field at fault, or None.
    """

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class RequestError(EngineError):
    """The request's fault: it can never succeed as it stands."""


class Busy(EngineError):
    """Nobody's fault: the queue is full or the wait was too long. The same request may succeed later."""


class Unavailable(EngineError):
    """Nobody's fault: the engine is loading, restarting or shutting down. The same request may succeed later."""


class EngineFault(EngineError):
    """Our fault: the engine failed this request, or died under it."""


class LoadError(EngineError):
    """The operator's fault: the model cannot be loaded as configured. Restarting would not help."""


class SlowReader(EngineError):
    """The client's fault: it took its text too slowly, and its request was cancelled."""
