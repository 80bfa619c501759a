"""Status of the engine."""

import os
from dataclasses import dataclass
from enum import StrEnum

from engine.config import EngineConfig
from engine.notifier import Notifier


class EngineState(StrEnum):
    """State of the engine process.

    `DOWNLOADING` leads to `LOADING` or `FAILED`; `LOADING` to `READY` or `FAILED`; `READY` to `RESTARTING`, by way of
    `STALLED` if the process had to be killed; `RESTARTING` to `READY`. `FAILED` and `STOPPED` are final.
    """

    DOWNLOADING = "downloading"
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    STALLED = "stalled"
    FAILED = "failed"
    STOPPED = "stopped"


RESTARTING = {EngineState.STALLED, EngineState.RESTARTING}
"""States in which requests wait for another process."""
_FINAL = {EngineState.FAILED, EngineState.STOPPED}


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Snapshot of the engine's status."""

    state: EngineState
    """State of the engine process."""
    detail: str
    """Reason for the state, as one sentence. Clients may see it: it names files without their folders."""
    progress: float
    """Loaded share of the model, from 0 to 1."""
    restarts: int
    """Number of processes started after the first one."""
    cause: str = ""
    """Reason why the model cannot be loaded, or loaded again, for the log, with the full paths of files; else empty."""


class StatusBoard:
    """Holds the latest status, and wakes the tasks that wait for a change."""

    def __init__(self) -> None:
        self.latest = EngineStatus(EngineState.LOADING, "The model is loading.", 0.0, 0)
        self._changed = Notifier()

    def post(self, status: EngineStatus) -> None:
        """Set the latest status, unless the current one is final."""
        if self.latest.state not in _FINAL:
            self.latest = status
            self._changed.notify()

    def change(
        self, state: EngineState, detail: str, *, progress: float = 0.0, restarts: int | None = None, cause: str = ""
    ) -> None:
        """Post a status with these values. The number of restarts stays by default."""
        restarts = self.latest.restarts if restarts is None else restarts
        self.post(EngineStatus(state, detail, progress, restarts, cause))

    async def changed(self, known: EngineStatus) -> EngineStatus:
        """Wait until the latest status differs from `known` and return it."""
        while self.latest == known:
            await self._changed.wait()
        return self.latest


def without_folders(text: str, config: EngineConfig) -> str:
    """Return a text with the files of a configuration, and others in their folders, by their names only."""
    files = [config.model, *config.adapters, *(path for path, _scale in config.control_vectors)]
    folders = {os.path.dirname(file) for file in files} - {"", "/"}  # noqa: PTH120 - as the engine writes it
    for folder in sorted(folders, key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    return text
