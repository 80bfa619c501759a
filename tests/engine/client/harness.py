"""Engines over real processes and pipes, with a scripted child at the other end."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from engine import (
    Download,
    Engine,
    EngineConfig,
    EngineState,
    EngineStatus,
    GenerationRequest,
    Supervision,
    open_engine,
)
from engine.environment import command_for

GUARD = 20
"""Seconds after which a hanging test fails."""
FOREVER = 2.0 * GUARD
"""A limit that no test reaches: a wait for it ends at the guard."""


def ask(script: str, *, name: str = "r", **fields: Any) -> GenerationRequest:
    """Return a request with a script for the child as its prompt."""
    return GenerationRequest(id=name, prompts=(script,), **{"stream": True, **fields})


@dataclass(frozen=True)
class Scripted:
    """Starts engines on scripted children, and reads in their journal the frames they received."""

    journal: Path

    @asynccontextmanager
    async def open(
        self,
        load: str = "ok",
        *,
        ready: bool = True,
        restarts: bool = True,
        clock: Callable[[], float] = anyio.current_time,
        download: Download | None = None,
        repack: bool | None = None,
        **limits: float,
    ) -> AsyncIterator[Engine]:
        """Start an engine with a child that loads as scripted. On exit, no process may remain, not even a zombie.

        Without `restarts`, the wait before the first one outlasts the test.
        """
        wait = 0.01 if restarts else FOREVER
        command = [*command_for("tests.engine.client.scripted_child"), str(self.journal), load]
        supervision = Supervision(**{"backoff_first": wait, "answer_timeout": FOREVER, **limits})
        with anyio.fail_after(GUARD):
            config = EngineConfig(model="/folder/m", repack=repack)
            async with open_engine(
                config, command=command, limits=supervision, clock=clock, download=download
            ) as engine:
                if ready:
                    await engine.ready()
                yield engine
        assert not [pid for pid in self.pids() if _exists(pid)]

    async def saw(self, engine: Engine, start: str) -> int:
        """Return the number of journal lines that start so, once the child has read all frames."""
        await engine.inspect()
        return self.count(start)

    def count(self, start: str) -> int:
        return sum(line.startswith(start) for line in self.lines())

    def keys(self, name: str = "r") -> list[str]:
        return [line.split()[1] for line in self.lines() if line.startswith("generate ") and line.endswith(f" {name}")]

    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines() if line.startswith("start ")]

    def kill(self) -> None:
        """Kill the latest process."""
        os.kill(self.pids()[-1], signal.SIGKILL)

    async def killed(self, engine: Engine) -> EngineStatus:
        """Kill the latest process, and wait until the engine restarts."""
        self.kill()
        return await until(engine, EngineState.RESTARTING)

    def lines(self) -> list[str]:
        """Return the journal; it is empty if the only child was killed before its start."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(engine: Engine, *states: EngineState) -> EngineStatus:
    """Wait for one of the states."""
    while engine.status.state not in states:
        await engine.status_changed()
    return engine.status


async def text(engine: Engine, script: str, **fields: Any) -> str:
    """Return the whole text of a request's first choice."""
    said = []
    async with engine.generate(ask(script, **fields)) as generation:
        while events := await generation.take():
            said += [event.text for event in events]
    return "".join(said)
