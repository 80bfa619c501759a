"""Functions that workers call in the tests."""

import errno
import os
import re
import signal
import socket
import time
from pathlib import Path

from engine import Busy, RequestError


def echo(argument: bytes, payload: bytes) -> bytes:
    return argument + payload


def process_id(_argument: bytes, _payload: bytes) -> bytes:
    return str(os.getpid()).encode()


def enlarge(argument: bytes, _payload: bytes) -> bytes:
    """Return as many bytes as the argument says."""
    return bytes(int(argument))


def refuse(argument: bytes, _payload: bytes) -> bytes:
    raise RequestError(argument.decode(), code="refused", param="messages")


def overload(argument: bytes, _payload: bytes) -> bytes:
    raise Busy(argument.decode(), code="queue_full")


def fail(_argument: bytes, _payload: bytes) -> bytes:
    raise KeyError("words of the client")


def recurse(argument: bytes, payload: bytes) -> bytes:
    return recurse(argument, payload)


def allocate(argument: bytes, _payload: bytes) -> bytes:
    """Allocate as many bytes as the argument says, and drop them."""
    return str(len(bytearray(int(argument)))).encode()


def hold(argument: bytes, _payload: bytes) -> bytes:
    """Write the process id to a file, and never return. The interpreter's lock is held by C code."""
    Path(argument.decode()).write_text(str(os.getpid()))
    re.match(r"(a|aa)+$", "a" * 1000 + "b")
    raise AssertionError


def wait(argument: bytes, _payload: bytes) -> bytes:
    """Wait until a file has a byte: the read of a FIFO."""
    return Path(argument.decode()).read_bytes()


def stop(_argument: bytes, _payload: bytes) -> bytes:
    """Stop this process, as another program can."""
    os.kill(os.getpid(), signal.SIGSTOP)
    raise AssertionError


def die(_argument: bytes, _payload: bytes) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    raise AssertionError


def die_once(argument: bytes, payload: bytes) -> bytes:
    """Die, unless the file that the argument names exists. It does afterwards."""
    path = Path(argument.decode())
    if not path.exists():
        path.touch()
        die(argument, payload)
    return payload


def connect(argument: bytes, _payload: bytes) -> bytes:
    """Connect to a port of this machine, and return the name of the error or `connected`."""
    try:
        socket.create_connection(("127.0.0.1", int(argument)), timeout=10).close()
    except OSError as error:
        return errno.errorcode[error.errno or 0].encode()
    return b"connected"


def privileges(_argument: bytes, _payload: bytes) -> bytes:
    """Return the line of the process's status that says whether it can gain privileges."""
    lines = Path("/proc/self/status").read_bytes().splitlines()
    return next(line for line in lines if line.startswith(b"NoNewPrivs"))


def oom_score(_argument: bytes, _payload: bytes) -> bytes:
    return Path("/proc/self/oom_score_adj").read_bytes().strip()


def write_garbage(argument: bytes, _payload: bytes) -> bytes:
    """Write bytes to every socket of this process, as a template that escaped from its sandbox could."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, argument)
        except OSError:
            continue
    return b""


def append_process_id(argument: bytes, _payload: bytes) -> bytes:
    with Path(argument.decode()).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return b""


def append_process_id_and_die(argument: bytes, payload: bytes) -> bytes:
    append_process_id(argument, payload)
    return die(argument, payload)


def variables(_argument: bytes, _payload: bytes) -> bytes:
    """Return the environment of the worker, as lines. It may be forked from a process with another one in /proc."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items()).encode()
