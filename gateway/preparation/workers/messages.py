"""Frames between the gateway and its workers: the sizes of two parts, a head in MessagePack, and a payload of bytes.

The payload is kept apart, so that megabytes are neither copied into an encoder nor decoded by the event loop. The
gateway does not trust what comes from a worker: sizes are bounded, and the head is decoded by its type.
"""

import struct
from typing import Final

import msgspec

from gateway.preparation.codec import Failure

SIZES: Final = struct.Struct(">II")
"""Layout of a frame's beginning: the bytes of the head, and of the payload."""
MAX_HEAD = 2**20
"""Maximum size of a head. The largest is a job with a chat template as its argument."""


class Limits(msgspec.Struct, frozen=True, array_like=True):
    """Limits of one job."""

    seconds: float
    """CPU time from the job's start to its result. Linux only."""
    wait: float
    """Time from the job's start to its result, by the clock."""
    memory: int
    """Bytes that the worker may allocate, beyond those of an idle worker. Linux only."""
    output: int
    """Bytes of the result."""


class Job(msgspec.Struct, frozen=True, array_like=True):
    """A call of a function. The frame's payload is its second argument."""

    function: str
    """Function of a module, as `module:name`. It takes two `bytes` and returns `bytes`."""
    argument: bytes
    """First argument."""
    limits: Limits
    """Limits of the call."""


class Result(msgspec.Struct, frozen=True, array_like=True):
    """End of a job. The frame's payload is the function's result, empty if it failed."""

    spent: bool
    """True if the worker has grown and should be replaced."""
    failure: Failure | None = None
    """The exception that the function raised, or None."""
    trace: str = ""
    """Traceback of a defect, for the log."""


def frame(head: bytes, payload: bytes) -> bytes:
    """Return the beginning of a frame: everything but the payload itself."""
    return SIZES.pack(len(head), len(payload)) + head
