"""A model whose file is not on this machine yet."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from engine.client.status import EngineState, EngineStatus, StatusBoard
from engine.config import EngineConfig
from engine.errors import LoadError

Download: TypeAlias = Callable[[Callable[[float], None]], Awaitable[EngineConfig]]
"""Returns the configuration with the model's file once it is there. Calls its argument with the share, from 0 to 1.

It raises `LoadError` if the file cannot be had.
"""

DOWNLOADING = EngineStatus(EngineState.DOWNLOADING, "The model is being downloaded.", 0.0, 0)
"""Status from the start."""


async def obtain(download: Download, board: StatusBoard) -> EngineConfig | None:
    """Return the configuration with the model's file, and post the progress. Returns None after a posted failure."""

    def report(share: float) -> None:
        if share > board.latest.progress:
            board.post(replace(board.latest, progress=share))

    try:
        config = await download(report)
    except LoadError as error:
        board.change(EngineState.FAILED, error.message, cause=error.message)
        return None
    board.change(EngineState.LOADING, "The model is loading.")
    return config
