"""Conversion of the engine's refusals to exceptions."""

from engine.errors import Busy, EngineError, EngineFault, RequestError, Unavailable
from engine.protocol.messages import QueryFailed, Refused

_KINDS: dict[str, type[EngineError]] = {kind.__name__: kind for kind in (RequestError, Busy, Unavailable)}


def error_from(message: Refused | QueryFailed) -> EngineError:
    """Return the exception for a refusal; an `EngineFault` if its class name is unknown."""
    return _KINDS.get(message.fault, EngineFault)(message.message, code=message.code, param=message.param)
