"""The program: settings, logs, sockets, engine, server; and the same backwards."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from enum import IntEnum

import anyio
from anyio.abc import TaskStatus

from engine import Engine, EngineState, open_engine
from engine.logs import configure
from gateway.app import create_gateway
from gateway.capacity import allow, connections_for
from gateway.edge.ids import request_id
from gateway.edge.limits import ServerLimits
from gateway.edge.server import serve
from gateway.listen import listen, reason, url
from gateway.progress import progress_of
from gateway.settings import Settings, SettingsError, read_settings

logger = logging.getLogger("gateway")


class ExitCode(IntEnum):
    """How the program ended. An exception that nobody expected ends it with 1."""

    STOPPED = 0
    SETTINGS = 2
    LOAD = 3
    LISTEN = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code. `arguments` are those of this process unless given."""
    try:
        settings = read_settings(sys.argv[1:] if arguments is None else arguments, os.environ)
        allow(connections_for(settings))
    except SettingsError as error:
        return refuse(ExitCode.SETTINGS, str(error))
    configure(settings.log_level, settings.log_format, request_id.get)
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
    async with anyio.create_task_group() as tasks:
        await tasks.start(stop_on_signal, shutdown)
        async with open_engine(settings.engine_config()) as engine:
            tasks.start_soon(announce, engine, settings.served_name, [url(sock) for sock in sockets], shutdown)
            gateway = create_gateway(engine, settings)
            limits = ServerLimits(connections=connections_for(settings), grace=settings.grace)
            await serve(gateway.app, sockets, limits, shutdown=shutdown, on_draining=gateway.health.drain)
            failed = engine.status.state is EngineState.FAILED
        tasks.cancel_scope.cancel()
    logger.info("stopped")
    return ExitCode.LOAD if failed else ExitCode.STOPPED


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


async def announce(engine: Engine, name: str, urls: list[str], shutdown: anyio.Event) -> None:
    """Tell how loading goes, then that all is ready; set `shutdown` if the model cannot be loaded."""
    progress = progress_of(name)
    try:
        while (status := engine.status).state is EngineState.LOADING:
            progress.show(status.progress)
            await engine.status_changed(status)
    finally:
        progress.close()
    if status.state is not EngineState.READY:
        if status.state is EngineState.FAILED:
            logger.error("cannot serve %s: %s", name, status.detail)
        shutdown.set()
        return
    model = await engine.ready()
    logger.info(
        "listening on %s, serving %s (%s): %d slots of %d tokens each",
        " and ".join(urls),
        name,
        model.description,
        model.slots,
        model.context,
    )


if __name__ == "__main__":
    sys.exit(main())
