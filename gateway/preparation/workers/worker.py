"""Worker: runs one job after another in a process of its own, within the limits of each job."""

import importlib
import os
import resource
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from engine import EngineError, RequestError
from gateway.preparation.codec import Failure, failure_from
from gateway.preparation.workers.messages import SIZES, Job, Limits, Result, frame

Function: TypeAlias = Callable[[bytes, bytes], bytes]
"""Function that workers call: an argument and a payload to a result. It may raise an `EngineError`."""

READY: Final = struct.Struct(">I")
"""Layout of the first bytes that a worker sends: its process id."""
SPENT_GROWTH = 32 * 2**20
"""Bytes. A worker that has grown so far is replaced, because Python does not return all its memory to the system."""
ALARM_DELAY = 1.0
"""Seconds after a job's wait at which the worker ends by itself. The gateway kills it before, if it is still alive."""
MAX_TRACE = 20
"""Maximum of frames in a trace. A recursion has thousands."""

_PAGE = resource.getpagesize()
_KIBIBYTE = 1 if sys.platform == "darwin" else 1024
"""Unit of `ru_maxrss` in bytes."""


def work(connection: socket.socket) -> None:
    """Run jobs until the gateway closes the connection.

    The collection of cycles is off, as in the fork server: a worker that grows is replaced.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel takes this process before the engine
    base, peak = _allocated(), _peak()
    with suppress(ConnectionError, EOFError):  # the gateway has left
        connection.sendall(READY.pack(os.getpid()))
        while True:
            head, payload = _receive(connection)
            job = msgspec.msgpack.decode(head, type=Job)
            _apply(job.limits, base)
            failure, trace, result = _call(job, payload)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            head = msgspec.msgpack.encode(Result(_peak() - peak > SPENT_GROWTH, failure, trace))
            connection.sendall(frame(head, result))
            connection.sendall(result)


def _receive(connection: socket.socket) -> tuple[bytes, bytes]:
    head, payload = SIZES.unpack(_receive_exactly(connection, SIZES.size))
    return _receive_exactly(connection, head), _receive_exactly(connection, payload)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        if not (received := connection.recv_into(view)):
            raise EOFError
        view = view[received:]
    return bytes(data)


def _apply(limits: Limits, base: int) -> None:
    """Set limits that the kernel enforces, also while C code holds the interpreter's lock. Both timers end the process.

    The one by the clock is for a gateway that cannot kill it.
    """
    signal.setitimer(signal.ITIMER_REAL, limits.wait + ALARM_DELAY)
    if sys.platform == "linux":
        signal.setitimer(signal.ITIMER_PROF, limits.seconds)
        resource.setrlimit(resource.RLIMIT_DATA, (base + limits.memory, resource.RLIM_INFINITY))


def _call(job: Job, payload: bytes) -> tuple[Failure | None, str, bytes]:
    """Return the failure of a job, the traceback of a defect, and the result."""
    try:
        return None, "", _checked(_function(job.function)(job.argument, payload), job.limits)
    except EngineError as error:
        return failure_from(error), "", b""
    except MemoryError:
        mebibytes = job.limits.memory >> 20
        refusal = RequestError(f"The request needs more than {mebibytes} MiB of memory.", code="too_large")
        return failure_from(refusal), "", b""
    except Exception as error:  # noqa: BLE001 - it crosses to the gateway, which logs it
        return failure_from(error), "".join(traceback.format_exception(error, limit=-MAX_TRACE)), b""


def _checked(result: bytes, limits: Limits) -> bytes:
    if len(result) > limits.output:
        raise RequestError(f"The request becomes longer than {limits.output} bytes.", code="too_large")
    return result


@cache
def _function(name: str) -> Function:
    module, _, function = name.partition(":")
    found: Function = getattr(importlib.import_module(module), function)
    return found


def _allocated() -> int:
    """Return the bytes that count for `RLIMIT_DATA`."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[5]) * _PAGE


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE
