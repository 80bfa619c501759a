"""Limits of the server and of each connection, in bytes and seconds."""

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of the server and of each connection."""

    connections: int = 512
    """Maximum number of open connections. Each is an open file.

    A further client takes the place of the connection that has been idle for longest. If all have a request, it waits
    in the kernel's backlog and gets no response there, not even a 429. Therefore the number should exceed the requests
    that may run and wait.
    """
    idle_grace: float = 0.1
    """Seconds for which an idle connection keeps its place, so that a new client has time to send its request."""
    head: int = 64 * KIB
    """Maximum bytes of a request's line and headers. A larger head is answered with 431."""
    ahead: int = 64 * KIB
    """Maximum bytes that a client may pipeline, that is, send before the response to its request is complete.

    They are kept, because only a reader that continues to read detects a hang-up behind them. More bytes close the
    connection.
    """
    unread: int = 64 * KIB
    """Bytes of a body that the application has not read, at which the connection is read no further."""
    unread_timeout: float = 60.0
    """Seconds that the application may leave `unread` bytes of a body unread. After them the connection closes.

    Longer than the application waits for memory.
    """
    keep_alive_timeout: float = 10.0
    """Seconds from the start of the connection, or from its last response, to the next complete head.

    The first ones include the TLS handshake.

    The default exceeds the 5 s after which httpx drops an idle connection, so that the client closes first.
    """
    write_timeout: float = 20.0
    """Seconds that the kernel may take to accept 64 KiB, or a smaller write. After them the client counts as gone."""
    linger: float = 2.0
    """Seconds for which a connection that the server closes is still read.

    A client that is still sending can then read the response and does not get a reset instead. The head of a request
    that arrives when the shutdown starts has as long.
    """
    grace: float = 10.0
    """Seconds for which running requests may continue after the start of the shutdown."""
    close_timeout: float = 8.0
    """Seconds after the grace period in which requests must send their final error. Then all connections are reset.

    Longer than an engine that does not answer and a client that does not read can take together.
    """
