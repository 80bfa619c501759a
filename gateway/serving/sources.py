"""Sources of engines: where a model's engine comes from, and how a request holds it."""

from contextlib import ExitStack
from typing import Protocol

from typing_extensions import override

from engine import Engine, EngineStatus, Telemetry
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

    def load(self) -> bool:
        """Load the model without a request for it, or keep it if it is to be unloaded. Does not wait.

        Returns False if the model is loaded and stays anyway.
        """

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
    def load(self) -> bool:
        """Return False: the engine loads its model at its start."""
        return False

    @override
    def unload(self) -> None:
        """Do nothing: see `can_unload`."""

    @override
    def keep(self, seconds: float) -> None:
        """Do nothing: see `can_unload`."""
