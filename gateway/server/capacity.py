"""How many clients can be connected at once. Each is an open file, and the system bounds those of a process."""

import resource

SPARE_CONNECTIONS = 256
"""Beyond every request that may run or wait: for clients that are told 429, ask how the server is, or are idle."""

OTHER_FILES = 64
"""Listeners, the engine's pipes, the event loop's own files, and what is open for a moment."""


class TooManyFilesError(Exception):
    """The system does not allow as many open files as the connections need."""


def connections_for(slots: int, queue_limit: int) -> int:
    """Return the connections that must be open at once, so that a full queue is answered and does not seem dead."""
    return slots + queue_limit + SPARE_CONNECTIONS


def allow(connections: int) -> None:
    """Raise this process's limit of open files to hold these connections, if it is lower.

    Raises `TooManyFilesError` where the system does not allow so many.
    """
    files = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _suffices(soft, files):
        return
    if not _suffices(hard, files):
        raise TooManyFilesError(
            f"--queue-limit and --slots need {files} open files, and this process may have {hard}; "
            "choose a lower --queue-limit, or raise the limit (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def _suffices(limit: int, files: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= files
