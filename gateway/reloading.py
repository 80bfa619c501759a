"""Reload on SIGHUP of what can change while the server runs."""

import logging
import signal
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

import anyio
from anyio import to_thread
from anyio.abc import TaskStatus

from gateway.flags import file_key
from gateway.serving.sources import EngineSource
from gateway.settings import Settings

logger = logging.getLogger(__name__)

Reloadable: TypeAlias = Callable[[], Awaitable[None]]
"""Reads its files again. If that fails, it keeps its state and raises an exception whose text is one line."""


async def reload_on_signal(reloadables: Sequence[Reloadable], *, task_status: TaskStatus[None]) -> None:
    """Call every reloadable at each SIGHUP, until cancelled. The server goes on, whatever fails."""
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            logger.info("SIGHUP: reloading")
            await reload_all(reloadables)


async def reload_all(reloadables: Sequence[Reloadable]) -> None:
    """Call every reloadable. One that fails is logged in one line, and the others follow."""
    for reload in reloadables:
        try:
            await reload()
        except Exception as error:  # noqa: BLE001 - each part has errors of its own, and none may end the server
            logger.error("cannot reload, nothing changes: %s", error)  # noqa: TRY400 - an error of the operator


def log_level_of(sources: Collection[EngineSource]) -> Reloadable:
    """Return a reloadable, after that of the settings, that passes the log level of this process on to the engines."""

    async def reload() -> None:
        level = logging.getLevelName(logging.getLogger().level).lower()
        for source in sources:
            if source.engine is not None:
                source.engine.set_log_level(level)

    return reload


class SettingsReload:
    """Reload of the settings that can change while the server runs: `--log-level`, of this process."""

    def __init__(self, settings: Settings, read: Callable[[], Settings]) -> None:
        """Create the reload.

        Args:
            settings: The settings in use.
            read: Reads them again, from where they came.
        """
        self._settings = settings
        self._read = read

    async def __call__(self) -> None:
        """Read the settings again, also the file of `--config`, and use the new log level.

        Other settings that have changed are named in a line of the log.

        Raises:
            SettingsError: A setting is invalid now.
        """
        new = await to_thread.run_sync(self._read)
        changed = {name for name in Settings.model_fields if getattr(new, name) != getattr(self._settings, name)}
        if new.log_level != logging.getLevelName(logging.getLogger().level).lower():
            logging.getLogger().setLevel(new.log_level.upper())
            logger.info("the log level is %s", new.log_level)
        if changed := changed - {"log_level"}:
            keys = ", ".join(sorted(map(file_key, changed)))
            logger.warning("these settings have changed and need a restart: %s", keys)
