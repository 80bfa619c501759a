"""Environment of a cluster on this machine. Ray reads it while it is imported, so that nothing here imports Ray."""

from collections.abc import MutableMapping

LOCAL_RAY = {
    "RAY_DEDUP_LOGS": "0",  # otherwise lines that differ only in numbers are left out
    "RAY_worker_niceness": "0",  # otherwise its processes hardly run on a busy machine
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # there and without it, Ray listens on 127.0.0.1 alone
    "RAY_SERVE_MAX_PER_REPLICA_RETRY_COUNT": "1",  # what does not start here will not start the next time, either
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "gateway.cluster.proxy:middlewares",
}
"""Ray's variables, and their values for a cluster on this machine."""


def set_for_local_ray(environment: MutableMapping[str, str]) -> None:
    """Set the variables that are not set."""
    for name, value in LOCAL_RAY.items():
        environment.setdefault(name, value)
