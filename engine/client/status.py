"""How the engine is, as others see it."""

from dataclasses import dataclass
from enum import StrEnum

from engine.client.notifier import Notifier


class EngineState(StrEnum):
    """What the engine's process is doing.

    `LOADING` leads to `READY` or `FAILED`; `READY` to `RESTARTING`, by way of `STALLED` if the process had to be
    killed; `RESTARTING` to `READY`. `FAILED` and `STOPPED` are final.
    """

    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    STALLED = "stalled"
    FAILED = "failed"
    STOPPED = "stopped"


_FINAL = {EngineState.FAILED, EngineState.STOPPED}


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How the engine is.

    Attributes:
        state: what its process is doing.
        detail: one sentence that says why.
        progress: share of the model that is loaded, 0 to 1.
        restarts: processes started after the first one.
    """

    state: EngineState
    detail: str
    progress: float
    restarts: int


class StatusBoard:
    """Holds the latest status, and wakes those who wait for another."""

    def __init__(self) -> None:
        self.latest = EngineStatus(EngineState.LOADING, "The model is loading.", 0.0, 0)
        self._news = Notifier()

    def post(self, status: EngineStatus) -> None:
        """Make `status` the latest one, unless a final one came before."""
        if self.latest.state not in _FINAL:
            self.latest = status
            self._news.notify()

    async def changed(self, known: EngineStatus) -> EngineStatus:
        """The latest status; waits while it is `known`."""
        while self.latest == known:
            await self._news.wait()
        return self.latest
