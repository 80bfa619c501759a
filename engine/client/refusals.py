"""Conversion of the engine's refusals to exceptions."""

from engine.errors import Busy, EngineError, EngineFault, RequestError, Unavailable
from engine.protocol.messages import QueryFailed, Refused

_KINDS: dict[str, type[EngineError]] = {kind.__name__: kind for kind in (RequestError, Busy, Unavailable)}


def error_from(message: Refused | QueryFailed, retry_after: float | None = None) -> EngineError:
    """Return the exception for a refusal; an `EngineFault` if its class name is unknown.

    Args:
        message: Refusal of the engine.
        retry_after: `EngineError.retry_after` if the engine is busy.
    """
    kind = _KINDS.get(message.fault, EngineFault)
    wait = retry_after if kind is Busy else None
    figures = message.figures if isinstance(message, Refused) else None
    return kind(message.message, code=message.code, param=message.param, retry_after=wait, figures=figures)
