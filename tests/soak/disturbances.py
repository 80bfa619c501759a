"""Disturbances of the server during a soak. Each disturbance is one entry of `DISTURBANCES`."""

import os
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import orjson

from tests.gateway.server.tls.certificates import authority, files_in
from tests.soak.target import Target
from tests.soak.watched import STALL_TIMEOUT

Disturbance: TypeAlias = Callable[[Target, random.Random], Awaitable[None]]
"""Does something to the server. The next quiet moment shows that the server has survived it."""


def _send(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def kill_engine(target: Target, _rng: random.Random) -> None:
    """Kill the engine, as the system does when memory is short."""
    _send(target.engine_pid, signal.SIGKILL)


async def crash_engine(target: Target, _rng: random.Random) -> None:
    """Let the engine crash as by a wrong pointer."""
    _send(target.engine_pid, signal.SIGSEGV)


async def pause_engine(target: Target, rng: random.Random) -> None:
    """Stop the engine for a while in which its clients only wait."""
    pid = target.engine_pid
    _send(pid, signal.SIGSTOP)
    await anyio.sleep(rng.uniform(0.2, STALL_TIMEOUT / 4))
    _send(pid, signal.SIGCONT)


async def hang_engine(target: Target, _rng: random.Random) -> None:
    """Stop the engine until the watchdog kills it."""
    _send(target.engine_pid, signal.SIGSTOP)


async def reload(target: Target, _rng: random.Random) -> None:
    """Send SIGHUP."""
    _send(target.process.pid, signal.SIGHUP)


async def renew_certificate(target: Target, _rng: random.Random) -> None:
    """Put a new certificate and its key in the place of the old ones."""
    folder = target.files.certificate.parent / "new"
    folder.mkdir(exist_ok=True)
    new = files_in(folder, authority().issue_cert("localhost", "127.0.0.1"))
    for file, old in ((new.certificate, target.files.certificate), (new.key, target.files.key)):
        assert isinstance(file, Path)
        assert isinstance(old, Path)
        file.replace(old)


async def break_certificate(target: Target, rng: random.Random) -> None:
    """Reload while the certificate's file is broken, and repair it."""
    whole = target.files.certificate.read_bytes()
    target.files.certificate.write_bytes(b"broken")
    await reload(target, rng)
    await anyio.sleep(0.5)
    target.files.certificate.write_bytes(whole)


async def change_key(target: Target, rng: random.Random) -> None:
    """Add a key, change its limits, its secret, or its models, or revoke it. Some of its requests are running."""
    change = rng.choice(["add", "rotate", "limits", "revoke"])
    more = {
        "add": ["--requests-per-minute", "600", "--priority", "1"],
        "limits": rng.choice([["--tokens-per-minute", "2000"], ["--concurrent-requests", "1"], ["--models", "none"]]),
    }.get(change, [])
    name = ["--name", "soak"] if change == "add" else ["soak"]
    output = await target.keys(change, *name, *more, *([] if change in {"limits", "revoke"} else ["--json"]))
    if change in {"add", "rotate"} and output.startswith("{"):
        target.changing_key = orjson.loads(output)["secret"]


async def fill_disk(target: Target, rng: random.Random) -> None:
    """Leave the store no room for a while. Its rows wait in memory then."""
    _send(target.process.pid, signal.SIGUSR2)
    await anyio.sleep(rng.uniform(1, 4))
    _send(target.process.pid, signal.SIGUSR2)


DISTURBANCES: Mapping[Disturbance, int] = {
    kill_engine: 3,
    crash_engine: 2,
    pause_engine: 2,
    hang_engine: 1,
    reload: 1,
    renew_certificate: 1,
    break_certificate: 1,
    change_key: 2,
    fill_disk: 1,
}
"""All disturbances, with their weights."""
