"""Sources of engines: where a model's engine comes from, and how a request holds it."""

from contextlib import ExitStack
from typing import Protocol

import anyio
from typing_extensions import override

from engine import Engine, EngineStatus, Telemetry
from gateway.residency.residents import Residents
from gateway.residency.terms import ModelTerms
from gateway.settings.table import ServedModel


class EngineSource(Protocol):
    """Source of one model's engine."""

    @property
    def engine(self) -> Engine | None:
        """The engine, which may be loading, or None. Never waits."""

    @property
    def last_loaded(self) -> Engine | None:
        """The engine that loaded the model last, which may have ended, or None."""

    @property
    def status(self) -> EngineStatus:
        """Status of the engine; `STOPPED` without one."""

    @property
    def telemetry(self) -> Telemetry:
        """Latest measurements of the engine, with the counters of those before it; zeros without one."""

    @property
    def on_demand(self) -> bool:
        """True if the server is ready without this engine."""

    @property
    def waiting(self) -> int:
        """Number of requests that wait for the engine to be opened."""

    async def hold(self, held: ExitStack) -> Engine:
        """Return the engine, which stays until `held` is closed. May wait for it."""

    can_unload: bool
    """True if the engine may end while the server runs."""

    def load(self) -> None:
        """Load the model without a request for it. Does not wait."""

    def unload(self) -> None:
        """Unload the model once no request uses it. Does not wait."""

    def keep(self, seconds: float) -> None:
        """Keep the model loaded so long after its last request; negative: until another needs its memory."""

    @property
    def idle_left(self) -> float | None:
        """Seconds until the model is unloaded for idleness; None if it is not."""


class EngineHost(Protocol):
    """Sources of engines, which models may join while the server runs."""

    async def join(self, model: ServedModel) -> EngineSource:
        """Return the source of a model that joins. One that has joined is loaded again, from its new file."""

    async def leave(self, name: str) -> None:
        """Unload a model that has joined once no request uses it, and forget it. No request may follow."""

    def used(self, name: str) -> bool:
        """Return True if a request uses a model or waits for it."""


class OpenEngine(EngineSource):
    """An engine that is open as long as the server runs. It is the caller's to wait for its load."""

    on_demand = False
    can_unload = False
    waiting = 0
    idle_left = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    @override
    def engine(self) -> Engine:
        return self._engine

    @property
    @override
    def last_loaded(self) -> Engine:
        return self._engine

    @property
    @override
    def status(self) -> EngineStatus:
        return self._engine.status

    @property
    @override
    def telemetry(self) -> Telemetry:
        return self._engine.telemetry

    @override
    async def hold(self, held: ExitStack) -> Engine:
        return self._engine

    @override
    def load(self) -> None:
        """Do nothing: the engine loads its model at its start."""

    @override
    def unload(self) -> None:
        """Do nothing: see `can_unload`."""

    @override
    def keep(self, seconds: float) -> None:
        """Do nothing: see `can_unload`."""


class EngineOnDemand(EngineSource):
    """An engine that requests load, and that makes room for others."""

    can_unload = True

    def __init__(self, residents: Residents, terms: ModelTerms, *, timeout: float) -> None:
        """Create the source.

        Args:
            residents: own the engines of all such models.
            terms: terms of the model.
            timeout: seconds that a request may wait for it.
        """
        self._residents = residents
        self._terms = terms
        self._model = terms.name
        self._timeout = timeout

    @property
    @override
    def on_demand(self) -> bool:
        """True unless it is kept loaded, or is to be loaded at the start and was not yet."""
        awaited = self._terms.load_at_start and self.last_loaded is None
        return not (self._terms.keep_loaded or awaited)

    @property
    @override
    def engine(self) -> Engine | None:
        return self._residents.engine(self._model)

    @property
    @override
    def last_loaded(self) -> Engine | None:
        return self._residents.last_loaded(self._model)

    @property
    @override
    def status(self) -> EngineStatus:
        return self._residents.status(self._model)

    @property
    @override
    def telemetry(self) -> Telemetry:
        return self._residents.telemetry(self._model)

    @property
    @override
    def waiting(self) -> int:
        return len(self._residents[self._model].waiting)

    @override
    async def hold(self, held: ExitStack) -> Engine:
        return await self._residents.hold(self._model, held, anyio.current_time() + self._timeout)

    @override
    def load(self) -> None:
        self._residents.load(self._model)

    @override
    def unload(self) -> None:
        self._residents.unload(self._model)

    @override
    def keep(self, seconds: float) -> None:
        self._residents.keep(self._model, seconds if seconds >= 0 else None)

    @property
    @override
    def idle_left(self) -> float | None:
        return self._residents.idle_left(self._model)
