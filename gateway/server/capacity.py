"""Client connections at once. Each is an open file, and the system limits the open files of a process."""

import resource

SPARE_CONNECTIONS = 256
"""Connections in addition to one for each request that may run or wait.

They serve clients that get a 429, that query the server's state, or that are idle.
"""

METRICS_CONNECTIONS = 32
"""Connections of the port for metrics at once."""

OTHER_FILES = METRICS_CONNECTIONS + 96
"""Open files other than clients' connections. Without those for metrics, about 15, and three for each loaded model."""


class TooManyFilesError(Exception):
    """The system does not allow as many open files as the connections need."""


def connections_for(slots: int, queue_limit: int) -> int:
    """Return the number of connections that can be open at once.

    It exceeds the queue, so that clients get a 429 when the queue is full and the server does not look dead.
    """
    return slots + queue_limit + SPARE_CONNECTIONS


def allow(connections: int) -> None:
    """Increase this process's limit of open files, if it is too low for this number of connections.

    Raises:
        TooManyFilesError: The system does not allow so many.
    """
    files = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _suffices(soft, files):
        return
    if not _suffices(hard, files):
        raise _too_many(files, f"this process may have {hard}")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    except ValueError as error:  # macOS has a limit for all processes besides, which `hard` does not show
        raise _too_many(files, "the system refuses so many") from error


def _too_many(files: int, why: str) -> TooManyFilesError:
    advice = "choose a lower --queue-limit, or raise the limit (ulimit -n)"
    return TooManyFilesError(f"--queue-limit and --slots need {files} open files, and {why}; {advice}")


def _suffices(limit: int, files: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= files
