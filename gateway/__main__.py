"""The program: settings, logs, sockets, engine, server; and the same backwards.

What is imported at the top is what it takes to start the engine's process.
"""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
from anyio.abc import TaskStatus

from engine import Engine, EngineState, ModelInfo, embedded_model, open_engine
from engine.logs import configure
from gateway.cli import SettingsError, read_settings
from gateway.middleware.request_id import current_request_id
from gateway.progress import progress_of
from gateway.server.capacity import TooManyFilesError, allow, connections_for
from gateway.server.listen import listen, reason, url
from gateway.settings import Settings

logger = logging.getLogger("gateway")


class ExitCode(IntEnum):
    """How the program ended. An exception that nobody expected ends it with 1."""

    STOPPED = 0
    SETTINGS = 2
    LOAD = 3
    LISTEN = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code. `arguments` are those of this process unless given."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["bench"]:
        from gateway.bench.command import bench  # noqa: PLC0415 - a server starts without it

        return bench(given[1:], os.environ)
    try:
        settings = read_settings(given, os.environ)
        allow(connections_for(settings.slots, settings.queue_limit))
    except (SettingsError, TooManyFilesError) as error:
        return refuse(ExitCode.SETTINGS, str(error))
    configure(settings.log_level, settings.log_format, current_request_id.get)
    try:
        sockets = listen(settings.host, settings.port)
    except OSError as error:
        return refuse(ExitCode.LISTEN, f"cannot listen on {settings.host} port {settings.port}: {reason(error)}")
    return anyio.run(run, settings, sockets, backend=settings.async_backend)


def refuse(code: ExitCode, complaint: str) -> ExitCode:
    """One line for the operator, however logs are set."""
    sys.stderr.write(f"llama-gateway: {complaint}\n")
    return code


async def run(settings: Settings, sockets: list[socket.socket]) -> ExitCode:
    """Serve until a signal, or until the model turns out not to load. HTTP is answered from the start."""
    shutdown = anyio.Event()
    if settings.model == embedded_model():
        logger.info("serving the tiny demonstration model inside this package; name a real one with --model FILE.gguf")
    async with anyio.create_task_group() as tasks:
        await tasks.start(stop_on_signal, shutdown)
        async with open_engines(settings) as engines:
            tasks.start_soon(announce, engines, [url(sock) for sock in sockets], shutdown)
            serve_engines = await anyio.to_thread.run_sync(import_server)
            await serve_engines(settings, sockets, shutdown, *(named.engine for named in engines))
            failed = any(named.engine.status.state is EngineState.FAILED for named in engines)
        tasks.cancel_scope.cancel()
    logger.info("stopped")
    return ExitCode.LOAD if failed else ExitCode.STOPPED


def import_server() -> Callable[..., Awaitable[None]]:
    """`serve_engines`. The import takes 0.2 s, and so does the start of the engine's process, which runs meanwhile."""
    from gateway.app import serve_engines  # noqa: PLC0415

    gc.freeze()  # a full collection would look through all that was imported, for 20 ms
    return serve_engines


async def stop_on_signal(shutdown: anyio.Event, *, task_status: TaskStatus[None]) -> None:
    """Set `shutdown` on SIGINT or SIGTERM. The next signal ends the process at once; the engine notices and follows."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for received in signals:
            if shutdown.is_set():
                signal.signal(received, signal.SIG_DFL)
                signal.raise_signal(received)
            logger.info("%s: stopping; the next one ends at once", received.name)
            shutdown.set()


class NamedEngine(NamedTuple):
    """An engine and its model's name."""

    name: str
    engine: Engine


@asynccontextmanager
async def open_engines(settings: Settings) -> AsyncIterator[list[NamedEngine]]:
    """The engine that generates, and behind it the one for embeddings, where that is another."""
    async with open_engine(settings.engine_config()) as engine:
        engines = [NamedEngine(settings.served_name, engine)]
        config = settings.embedder_config()
        if config is None:
            yield engines
            return
        async with open_engine(config) as embedder:
            yield [*engines, NamedEngine(Path(config.model).stem, embedder)]


async def announce(engines: Sequence[NamedEngine], urls: list[str], shutdown: anyio.Event) -> None:
    """Tell how loading goes, then that all is ready; set `shutdown` if a model cannot be loaded."""
    for name, engine in engines:
        if await loaded(name, engine) is not EngineState.READY:
            shutdown.set()
            return
    served = [describe(name, await engine.ready()) for name, engine in engines]
    logger.info("listening on %s, serving %s", " and ".join(urls), " and ".join(served))


async def loaded(name: str, engine: Engine) -> EngineState:
    """Tell how loading goes; gives the state that it led to."""
    progress = progress_of(name)
    try:
        while (status := engine.status).state is EngineState.LOADING:
            progress.show(status.progress)
            await engine.status_changed(status)
    finally:
        progress.close()
    if status.state is EngineState.FAILED:
        logger.error("cannot serve %s: %s", name, status.detail)
    return status.state


def describe(name: str, model: ModelInfo) -> str:
    """A model and what can be done with it."""
    use = f"{model.slots} slots of {model.context} tokens each" if model.generates else "embeddings only"
    return f"{name} ({model.description}): {use}"


if __name__ == "__main__":
    sys.exit(main())
