"""Codec of what crosses between the gateway and a process that prepares requests: MessagePack by types, and errors."""

from functools import cache
from typing import Any

import msgspec

from engine import Busy, EngineError, EngineFault, RequestError, Unavailable

_encoder = msgspec.msgpack.Encoder()
_KINDS: dict[str, type[EngineError]] = {kind.__name__: kind for kind in (RequestError, Busy, Unavailable)}


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An error that crosses."""

    fault: str
    """Name of its class."""
    message: str
    """`EngineError.message`."""
    code: str | None = None
    """`EngineError.code`."""
    param: str | None = None
    """`EngineError.param`."""


def encode(value: object) -> bytes:
    """Return a value in MessagePack."""
    return _encoder.encode(value)


def decode(data: bytes, kind: Any) -> Any:  # noqa: ANN401 (a type may be any object, and so its values)
    """Return the value of the type `kind` that `encode` was called with. Raises `ValueError` for other bytes."""
    return _decoder(kind).decode(data)


def failure_from(error: Exception) -> Failure:
    """Return an error as it crosses. The message of a defect is left out, since it may have words of the client."""
    if isinstance(error, EngineError):
        return Failure(type(error).__name__, error.message, error.code, error.param)
    return Failure(type(error).__name__, f"The preparation of the request failed: {type(error).__name__}.")


def error_from(failure: Failure) -> EngineError:
    """Return the exception of a failure; an `EngineFault` if its class name is unknown."""
    return _KINDS.get(failure.fault, EngineFault)(failure.message, code=failure.code, param=failure.param)


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:  # noqa: ANN401 (a type may be any object)
    return msgspec.msgpack.Decoder(kind)
