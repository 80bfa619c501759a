"""Main program: sets up settings, logs, sockets, engine and server, and shuts them down in reverse order.

The imports at the top are limited to those that starting the engine process needs.
"""

import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import anyio.to_thread
from anyio.abc import TaskStatus

from engine import EngineState, embedded_model
from engine.errors import LoadError
from engine.logs import configure
from engine.processors import check_processors
from gateway.arguments import ExitCode, exit_with
from gateway.cli import SettingsError, read_settings
from gateway.cluster.environment import set_for_local_ray
from gateway.commands import run_command
from gateway.engines import EnginesOnDemand, open_engines
from gateway.like.llama_server import LineError, command_line
from gateway.loading import log_loading
from gateway.middleware.access_log import logger as access_logger
from gateway.middleware.request_id import LOG_FIELDS
from gateway.reloading import Reloadable, SettingsReload, log_level_of, reload_on_signal
from gateway.server.capacity import TooManyFilesError, allow, connections_for
from gateway.server.lag import LoopClock
from gateway.server.listen import ListenError, Listening, close, is_local, listen_all, url
from gateway.server.tls.certificates import Certificates, TlsError, open_certificates
from gateway.serving.sources import EngineSource
from gateway.settings import Settings
from gateway.signals import end_by
from gateway.storage.database import StorageError
from gateway.stores import check_stores, open_stores, storage_error
from gateway.tracing.choice import TracesUnavailableError, check_traces

if TYPE_CHECKING:
    from gateway.app import Equipment
    from gateway.keys.ring import KeyRing
    from gateway.pulls.pulls import PullParts

logger = logging.getLogger("gateway")

OBJECTS_PER_COLLECTION = 10_000
"""New objects after which cyclic garbage is collected. Requests and connections make little of it. With Python's 700,
collections take a tenth of the CPU time of requests and of streams.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit code.

    Args:
        arguments: the command line without the program's name.
    """
    if (code := run_command(arguments, os.environ)) is not None:
        return code
    try:
        line = command_line(arguments, os.environ)
        read = partial(read_settings, line.arguments, line.environment, line.defaults)
        settings = read()
        allow(connections_for(settings.all_slots, settings.queue_limit))
        certificates = certificates_for(settings)
        check_traces(settings.traces, os.environ)
        check_replicas(settings)
        for served in settings.served:
            check_processors(served.settings.hardware)
    except (SettingsError, LineError, TooManyFilesError, TlsError, TracesUnavailableError, LoadError) as error:
        return exit_with(ExitCode.SETTINGS, str(error))
    access_logger.disabled = settings.access_log == "off"
    configure(settings.log_level, settings.log_format, LOG_FIELDS)
    for note in line.notes:
        logger.warning(note)
    for model in settings.unserved:
        logger.warning("not served: %s", model.refusal)
    if settings.ray:
        return serve_cluster(settings)
    try:
        listening = listen_as(settings, certificates)
    except ListenError as error:
        return exit_with(ExitCode.LISTEN, str(error))
    reloadables: list[Reloadable] = [SettingsReload(settings, read)]
    try:
        return anyio.run(run, settings, listening, certificates, reloadables, backend=settings.async_backend)
    except BaseExceptionGroup as failures:
        if (failure := storage_error(failures)) is None:
            raise
        return exit_with(ExitCode.SETTINGS, str(failure))
    finally:
        close([*listening.all, *listening.metrics])  # also those of a server that did not start


def check_replicas(settings: Settings) -> None:
    """Check that there is a cluster if there are to be replicas.

    Raises:
        SettingsError: there is none.
    """
    if not settings.ray and not settings.model_fields_set.isdisjoint({"replicas", "max_replicas"}):
        raise SettingsError("--replicas and --max-replicas need --ray")


def serve_cluster(settings: Settings) -> ExitCode:
    """Serve with a cluster on this machine until a signal arrives."""
    if find_spec("ray") is None:
        return exit_with(ExitCode.SETTINGS, '--ray needs its package: pip install "llama-gateway[ray]"')
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # there is no reload: the end of the terminal ends the cluster
    set_for_local_ray(os.environ)
    from gateway.cluster.health import DeploymentFailedError  # noqa: PLC0415
    from gateway.cluster.local import serve_locally  # noqa: PLC0415 - needs Ray
    from gateway.cluster.split import ClusterSettingsError  # noqa: PLC0415

    try:
        anyio.run(check_stores, settings)
        serve_locally(settings)
    except (ClusterSettingsError, StorageError) as error:
        return exit_with(ExitCode.SETTINGS, str(error))
    except ListenError as error:
        return exit_with(ExitCode.LISTEN, str(error))
    except DeploymentFailedError as error:
        return exit_with(ExitCode.LOAD, str(error))
    return ExitCode.DONE


def certificates_for(settings: Settings) -> Certificates | None:
    """Return the certificates for TLS, or None without it.

    Raises:
        TlsError: A file is of no use, or a flag for TLS has no effect.
    """
    if settings.tls_certificate is not None and not settings.listens_on_port:
        raise TlsError("--tls-certificate needs --host or --port, because a Unix socket has no TLS")
    return open_certificates(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)


def listen_as(settings: Settings, certificates: Certificates | None) -> Listening:
    """Return sockets that listen where the settings say.

    Raises:
        ListenError: An address or a path cannot be used.
    """
    address = (settings.host, settings.port) if settings.listens_on_port else None
    sockets, metrics = listen_all(address, settings.unix_socket), list[socket.socket]()
    if settings.metrics_port is not None:
        try:
            metrics = listen_all((settings.metrics_host or settings.host, settings.metrics_port), None)
        except ListenError:
            close(sockets)
            raise
    return Listening(sockets, metrics, None if certificates is None else certificates.current)


async def run(
    settings: Settings, listening: Listening, certificates: Certificates | None, reloadables: list[Reloadable]
) -> ExitCode:
    """Serve until a signal arrives or a model fails to load. The server answers HTTP while models load.

    Args:
        settings: The settings.
        listening: Listening sockets.
        certificates: Certificates for TLS on all sockets but Unix sockets and those of metrics; None serves without.
        reloadables: Called at SIGHUP. Parts that open later add theirs.
    """
    shutdown = anyio.Event()
    try:
        stores = await open_stores(settings)
    except StorageError as error:
        return exit_with(ExitCode.SETTINGS, str(error))
    keys = stores.keys
    warn_of_strangers(listening.all, keys)
    log_choices(settings, listening)
    async with anyio.create_task_group() as tasks:
        await tasks.start(stop_on_signal, shutdown, settings.grace)
        await tasks.start(reload_on_signal, reloadables)
        if certificates is not None:
            reloadables.append(certificates.reload)
            tasks.start_soon(certificates.watch)
        if keys is not None:
            reloadables.append(keys.reload)
        clock = LoopClock()
        async with open_engines(settings, clock.time) as engines:
            reloadables.append(log_level_of(engines.values()))
            urls = [url(sock, secure=certificates is not None) for sock in listening.all]
            tasks.start_soon(log_loading, engines, urls, settings, shutdown)
            serve_gateway, equipment = await anyio.to_thread.run_sync(import_server)
            parts = equipment(stores=stores, clock=clock, pulls=pull_parts(settings, engines))
            await serve_gateway(engines, settings, parts, listening, shutdown)
            failed = any(source.status.state is EngineState.FAILED for source in engines.values())
        tasks.cancel_scope.cancel()
    logger.info("stopped")
    return ExitCode.LOAD if failed and not settings.on_demand else ExitCode.DONE


def log_choices(settings: Settings, listening: Listening) -> None:
    """Log what an operator may not expect of the settings."""
    if listening.metrics:
        logger.info("metrics are on %s", " and ".join(f"{url(sock)}/metrics" for sock in listening.metrics))
    if [model.place for model in settings.served] == [embedded_model()]:
        logger.info("serving the tiny demonstration model inside this package; name a real one with --model FILE.gguf")
    if settings.log_content:
        logger.warning("prompts and answers are written to the log: --log-content")
    if settings.slot_save_path is not None:
        warn_of_unwritable(settings.slot_save_path)


def warn_of_unwritable(folder: Path) -> None:
    """Log a warning if no file can be written to the folder of saved slots. Files in it can still be restored."""
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        logger.warning("slots can be restored but not saved: --slot-save-path %s: %s", folder, error.strerror)


def warn_of_strangers(sockets: Sequence[socket.socket], keys: "KeyRing | None") -> None:
    """Log a warning if other machines can use the server without an API key."""
    public = [url(sock) for sock in sockets if not is_local(sock)]
    if public and keys is None:
        logger.warning(
            "all who can reach %s can use this server; --api-key or --keys lets in only those who have a key",
            " and ".join(public),
        )


def pull_parts(settings: Settings, engines: Mapping[str, EngineSource]) -> "PullParts | None":
    """Return what lets clients pull models, or None if they may not."""
    if not settings.allow_pull or not isinstance(engines, EnginesOnDemand):
        return None
    from gateway.hub.fetching import fetch  # noqa: PLC0415
    from gateway.hub.opening import hub_cache  # noqa: PLC0415 - it needs an extra
    from gateway.pulls.pulls import PullParts  # noqa: PLC0415

    return PullParts(engines, hub_cache(), partial(fetch, offline=settings.offline))


def import_server() -> "tuple[Callable[..., Awaitable[None]], type[Equipment]]":
    """Import and return `serve_gateway` and `Equipment`. It takes 0.2 s and runs while the engine process starts."""
    from gateway.app import Equipment  # noqa: PLC0415
    from gateway.serve import serve_gateway  # noqa: PLC0415

    gc.freeze()  # a full collection would otherwise scan all imported objects, for 20 ms
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    return serve_gateway, Equipment


async def stop_on_signal(shutdown: anyio.Event, grace: float, *, task_status: TaskStatus[None]) -> None:
    """Set `shutdown` on SIGINT or SIGTERM. A second signal ends the process at once; the engine then exits too.

    Args:
        shutdown: ends the server.
        grace: seconds that open requests then have, for the log.
    """
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for received in signals:
            if shutdown.is_set():
                logger.warning("%s: ending at once, which cuts the open requests", received.name)
                logging.shutdown()
                end_by(received)
            logger.info("%s: stopping; open requests have %g s; a second signal cuts them", received.name, grace)
            shutdown.set()
