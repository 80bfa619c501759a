"""A cluster on this machine alone: `llama-gateway serve --ray`."""

import logging
import signal
import threading
import time
from types import FrameType

import ray
from ray import serve
from ray.serve.config import HTTPOptions

from engine.processors import usable_processors
from gateway.cluster.application import application, parts_of
from gateway.cluster.health import DeploymentFailedError, reason_in
from gateway.cluster.split import check_room, replaced
from gateway.server.listen import close, reserve
from gateway.settings import Settings
from gateway.signals import end_by

logger = logging.getLogger("gateway")

APPLICATION = "llama-gateway"
"""Name of the application in Ray."""
OBJECT_STORE = 80 * 2**20
"""Bytes of Ray's shared memory, which must be at least 75 MiB. Requests and answers are too small for it."""
POLL = 0.2
"""Seconds between two questions whether the application has stopped."""


def serve_locally(settings: Settings) -> None:
    """Start a cluster, serve until a signal arrives, and stop everything when the open requests have ended.

    A second signal ends it at once.

    Raises:
        ClusterSettingsError: a setting has no effect in a cluster, or the machine has no room for the replicas.
        DeploymentFailedError: the replicas cannot start.
        ListenError: the port cannot be listened on.
    """
    replicas = (settings.max_replicas or settings.replicas) * len(settings.served)
    processors = usable_processors()
    threads = settings.threads or max(1, processors // replicas)
    settings = replaced(settings, {"threads": threads})
    parts = parts_of(settings)
    app = application(settings, parts)
    # Ray's proxy opens the port at the end. Until then a process of Ray may have it, and a taken one goes unnoticed.
    reserved = reserve(settings.host, settings.port)
    settings = replaced(settings, {"port": reserved[0].getsockname()[1]})
    try:
        start_ray(max(processors, replicas * threads))  # more replicas than processors share them
        room = ray.cluster_resources()
        check_room(parts.values(), settings.replicas, memory=room["memory"], gpus=room.get("GPU", 0))
        serve.start(proxy_location="HeadOnly", http_options=_http(settings))
        asked = _stop_on_signals()
        _deploy(app)
        scheme = "http" if settings.tls_certificate is None else "https"
        url = f"{scheme}://{settings.host}:{settings.port}"
        logger.info("listening on %s, replicas: %d", url, settings.replicas)
        asked.wait()
        stop_application()
        serve.shutdown()
    finally:
        ray.shutdown()
        close(reserved)
    logger.info("stopped")


def _stop_on_signals() -> threading.Event:
    """Return an event that the first signal sets. The second one ends the process at once."""
    asked = threading.Event()

    def stop(number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            logger.warning("%s: ending at once, which cuts the open requests", signal.Signals(number).name)
            logging.shutdown()
            end_by(number)
        logger.info("%s: stopping; the next one ends at once", signal.Signals(number).name)
        asked.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return asked


def start_ray(cpus: int) -> None:
    """Start Ray on this machine alone, as if it had so many CPUs. The environment must be that of `LOCAL_RAY`."""
    ray.init(
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE,
        logging_level=logging.WARNING,
    )


def _deploy(app: serve.Application) -> None:
    try:
        serve.run(app, name=APPLICATION, route_prefix="/")
    except RuntimeError as failure:
        deployments = serve.status().applications[APPLICATION].deployments
        failed = [one.message for one in deployments.values() if one.status == "DEPLOY_FAILED"]
        if not failed:
            raise
        raise DeploymentFailedError(reason_in(failed[0])) from failure


def stop_application() -> None:
    """Stop the replicas as an update does. The proxy runs on, so that their open requests end with an answer."""
    serve.delete(APPLICATION, _blocking=False)  # the blocking one gives up after a minute
    while APPLICATION in serve.status().applications:
        time.sleep(POLL)


def _http(settings: Settings) -> HTTPOptions:
    certificate, key = settings.tls_certificate, settings.tls_key or settings.tls_certificate
    files = {} if certificate is None else {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
    return HTTPOptions(host=settings.host, port=settings.port, **files)
