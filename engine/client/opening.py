"""Start and end of an engine."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from engine.client.download import Download
from engine.client.engine import Engine
from engine.client.supervisor import Supervisor
from engine.client.timeouts import Supervision
from engine.config import EngineConfig
from engine.environment import command_for
from engine.logs import current_model


@asynccontextmanager
async def open_engine(
    config: EngineConfig,
    *,
    command: Sequence[str] | None = None,
    limits: Supervision | None = None,
    clock: Callable[[], float] = anyio.current_time,
    download: Download | None = None,
) -> AsyncIterator[Engine]:
    """Start an engine and keep it alive inside the context. Does not wait for the model: see `Engine.ready`.

    Leaving the context ends the process within `limits.drain_timeout` and `limits.kill_timeout`, even when cancelled.
    An exception from the context is raised unchanged, not in an exception group.

    Args:
        config: Configuration that the engine process receives at its start.
        command: Command of the process; None runs `engine.worker.main`.
        limits: Timeouts of the supervision; None takes the defaults.
        clock: Clock by which the patience with readers and with the process is measured. It may stand still during
            stalls of the event loop.
        download: Provides the configuration with the model's file before the process starts; None takes `config`.
    """
    command = command or command_for("engine.worker.main")
    supervisor = Supervisor(config, command, limits or Supervision(), clock, download)
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_run, supervisor)
            try:
                yield Engine(supervisor)
            finally:
                supervisor.stop()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        failure = failures.exceptions[0]
    if failure is not None:
        raise failure


async def _run(supervisor: Supervisor) -> None:
    """Run a supervisor. The log lines of its tasks name its model."""
    current_model.set(supervisor.log_name)
    await supervisor.run()
