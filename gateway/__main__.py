"""Main program: sets up settings, logs, sockets, engine and server, and shuts them down in reverse order.

The imports at the top are limited to those that starting the engine process needs.
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
from gateway.middleware.access_log import logger as access_logger
from gateway.middleware.request_id import current_request_id, current_trace_id
from gateway.progress import progress_for
from gateway.server.capacity import TooManyFilesError, allow, connections_for
from gateway.server.lag import LoopClock
from gateway.server.listen import listen, reason, url
from gateway.settings import Settings
from gateway.tracing.choice import TracesUnavailableError, check_traces

logger = logging.getLogger("gateway")


class ExitCode(IntEnum):
    """Exit codes of `serve`. Python itself exits with 1 on an unexpected exception."""

    STOPPED = 0
    """Stopped by a signal."""
    SETTINGS = 2
    """A setting is invalid or asks for an extra that is not installed, or the system allows too few open files."""
    LOAD = 3
    """A model cannot be loaded."""
    LISTEN = 4
    """The address cannot be bound."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code.

    Args:
        arguments: the command line without the program's name; None takes this process's own.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["bench"]:
        from gateway.bench.command import bench  # noqa: PLC0415 - `serve` does not need it

        return bench(given[1:], os.environ)
    try:
        settings = read_settings(given, os.environ)
        allow(connections_for(settings.slots, settings.queue_limit))
        check_traces(settings.traces, os.environ)
    except (SettingsError, TooManyFilesError, TracesUnavailableError) as error:
        return exit_with(ExitCode.SETTINGS, str(error))
    access_logger.disabled = settings.access_log == "off"
    configure(settings.log_level, settings.log_format, current_request_id.get, current_trace_id.get)
    host, port = settings.host, settings.port
    metrics_sockets: list[socket.socket] = []
    try:
        sockets = listen(host, port)
        if settings.metrics_port is not None:
            host, port = settings.metrics_host or host, settings.metrics_port
            metrics_sockets = listen(host, port)
    except OSError as error:
        return exit_with(ExitCode.LISTEN, f"cannot listen on {host} port {port}: {reason(error)}")
    return anyio.run(run, settings, sockets, metrics_sockets, backend=settings.async_backend)


def exit_with(code: ExitCode, message: str) -> ExitCode:
    """Write one line to standard error, at every log level, and return the code."""
    sys.stderr.write(f"llama-gateway: {message}\n")
    return code


async def run(settings: Settings, sockets: list[socket.socket], metrics_sockets: list[socket.socket]) -> ExitCode:
    """Serve until a signal arrives or a model fails to load. The server answers HTTP while models load."""
    shutdown = anyio.Event()
    if metrics_sockets:
        logger.info("metrics are on %s", " and ".join(f"{url(sock)}/metrics" for sock in metrics_sockets))
    if settings.model == embedded_model():
        logger.info("serving the tiny demonstration model inside this package; name a real one with --model FILE.gguf")
    if settings.log_content:
        logger.warning("prompts and answers are written to the log: --log-content")
    async with anyio.create_task_group() as tasks:
        await tasks.start(stop_on_signal, shutdown)
        clock = LoopClock()
        async with open_engines(settings, clock) as engines:
            tasks.start_soon(log_loading, engines, [url(sock) for sock in sockets], settings, shutdown)
            serve_engines = await anyio.to_thread.run_sync(import_server)
            served = (named.engine for named in engines)
            await serve_engines(settings, sockets, shutdown, clock, *served, metrics_sockets=metrics_sockets)
            failed = any(named.engine.status.state is EngineState.FAILED for named in engines)
        tasks.cancel_scope.cancel()
    logger.info("stopped")
    return ExitCode.LOAD if failed else ExitCode.STOPPED


def import_server() -> Callable[..., Awaitable[None]]:
    """Import and return `serve_engines`. The import takes 0.2 s and runs while the engine process starts."""
    from gateway.app import serve_engines  # noqa: PLC0415

    gc.freeze()  # a full collection would otherwise scan all imported objects, for 20 ms
    return serve_engines


async def stop_on_signal(shutdown: anyio.Event, *, task_status: TaskStatus[None]) -> None:
    """Set `shutdown` on SIGINT or SIGTERM. A second signal ends the process at once; the engine then exits too."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for received in signals:
            if shutdown.is_set():
                signal.signal(received, signal.SIG_DFL)
                signal.raise_signal(received)
            logger.info("%s: stopping; the next one ends at once", received.name)
            shutdown.set()


class NamedEngine(NamedTuple):
    """An engine with the name of its model."""

    name: str
    """The model's name for clients."""
    engine: Engine
    """Runs the model."""


@asynccontextmanager
async def open_engines(settings: Settings, clock: LoopClock) -> AsyncIterator[list[NamedEngine]]:
    """Start the engine for generation, then the one for embeddings if a separate model is configured."""
    async with open_engine(settings.engine_config(), clock=clock.time) as engine:
        engines = [NamedEngine(settings.served_name, engine)]
        config = settings.embedder_config()
        if config is None:
            yield engines
            return
        async with open_engine(config, clock=clock.time) as embedder:
            yield [*engines, NamedEngine(Path(config.model).stem, embedder)]


async def log_loading(
    engines: Sequence[NamedEngine], urls: list[str], settings: Settings, shutdown: anyio.Event
) -> None:
    """Log the progress of loading, then the URLs. Sets `shutdown` if a model cannot be loaded."""
    for name, engine in engines:
        if await wait_until_loaded(name, engine) is not EngineState.READY:
            shutdown.set()
            return
    loaded = [(name, await engine.ready()) for name, engine in engines]
    if settings.max_tokens is None and any(model.generates for _, model in loaded):
        logger.info("an answer may fill its slot if its request has no limit; --max-tokens sets one for all")
    served = [describe(name, model) for name, model in loaded]
    logger.info("listening on %s, serving %s", " and ".join(urls), " and ".join(served))


async def wait_until_loaded(name: str, engine: Engine) -> EngineState:
    """Wait until the model is loaded or has failed, show the progress, and return the state."""
    progress = progress_for(name)
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
    """Return one log phrase: the model's name, description, and slots or use."""
    use = f"{model.slots} slots of {model.context} tokens each" if model.generates else "embeddings only"
    return f"{name} ({model.description}): {use}"


if __name__ == "__main__":
    sys.exit(main())
