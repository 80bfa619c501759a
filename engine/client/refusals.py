"""The engine's refusals as errors."""

from engine.errors import Busy, EngineError, EngineFault, RequestError, Unavailable
from engine.protocol.messages import QueryFailed, Refused

_KINDS: dict[str, type[EngineError]] = {kind.__name__: kind for kind in (RequestError, Busy, Unavailable)}


def error_of(message: Refused | QueryFailed) -> EngineError:
    """The error that a refusal stands for; an `EngineFault` where the engine names none that we know."""
    return _KINDS.get(message.fault, EngineFault)(message.message, code=message.code, param=message.param)
