"""Opener of fake engines: a test decides when a model has loaded, failed or ended, and sees every process."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn, cast

import anyio

from engine import Engine, EngineState, EngineStatus, LoadError, ModelInfo
from gateway.residency.policy import Residency
from gateway.residency.residents import Residents
from tests.gateway.fake_engine import MODEL, FakeEngine


class FakeModelEngine(FakeEngine):
    """An engine that loads until a test says how the load ended."""

    def __init__(self, host_memory: int, chat_template: str | None) -> None:
        super().__init__()
        self._info = replace(MODEL, host_memory=host_memory, host_buffers=host_memory // 2, chat_template=chat_template)
        self.model = None
        self.status = EngineStatus(EngineState.LOADING, "The model is loading.", 0.0, 0)
        self._done, self._lost = anyio.Event(), anyio.Event()

    def load(self) -> None:
        """End the load with success."""
        self.model, self.status = self._info, EngineStatus(EngineState.READY, "The model is loaded.", 1.0, 0)
        self._done.set()

    def fail(self, reason: str) -> None:
        """End the load with a failure."""
        self.status = EngineStatus(EngineState.FAILED, reason, 0.0, 0, f"/folder/{reason}")
        self._done.set()

    def lose(self, reason: str) -> None:
        """Let a process that replaces another one fail to load the model."""
        self.status = EngineStatus(EngineState.RESTARTING, reason, 0.0, 1, f"/folder/{reason}")
        self._lost.set()

    async def lost(self) -> NoReturn:
        if not self._lost.is_set():  # otherwise without a pause in which a request would get this engine
            await self._lost.wait()
        raise LoadError(self.status.detail, code="load_failed")

    async def ready(self) -> ModelInfo:
        await self._done.wait()
        if self.model is None:
            raise LoadError(self.status.detail, code="load_failed")
        return self.model


@dataclass
class FakeOpener:
    """Opens fake engines. It refuses what would be two processes of one model."""

    host_memory: int = 1
    """Bytes that each model reports after its load."""
    chat_template: str | None = "{{ messages[0].content }}"
    """Template of each model."""
    loads_at_once: bool = False
    """True for engines that load without a test's doing."""
    engines: dict[str, FakeModelEngine] = field(default_factory=dict)
    """Engines that are open, by model."""
    opened: list[str] = field(default_factory=list)
    """Models of all engines so far, in order."""
    most: int = 0
    """Largest number of engines that were open at once."""
    ends_slowly: anyio.Event | None = None
    """Until it is set, no process ends; unset for processes that end at once."""

    @asynccontextmanager
    async def __call__(self, model: str) -> AsyncIterator[Engine]:
        assert model not in self.engines, f"{model} has a process"
        engine = self.engines[model] = FakeModelEngine(self.host_memory, self.chat_template)
        self.opened.append(model)
        self.most = max(self.most, len(self.engines))
        if self.loads_at_once:
            engine.load()
        try:
            yield cast("Engine", engine)
        finally:
            with anyio.CancelScope(shield=True):
                if self.ends_slowly is not None:
                    await self.ends_slowly.wait()
                del self.engines[model]


@asynccontextmanager
async def opened(
    residency: Residency,
    opener: FakeOpener,
    *,
    patience: float = math.inf,
    clock: Callable[[], float] = anyio.current_time,
) -> AsyncIterator[Residents]:
    """Open the residents of a residency on fake engines. A request waits for `patience` seconds at most."""
    residents = Residents(residency, opener, timeout=patience, clock=clock)
    with anyio.fail_after(20):
        async with residents.open():
            yield residents
