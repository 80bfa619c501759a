"""Limits of the server and of each connection, in bytes and seconds."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of the server and of each connection.

    Attributes:
        connections: open at once, each of them an open file; further clients wait in the kernel's backlog, where they
            are told nothing. So it should exceed what may run and wait.
        head: bytes of a request's line and headers; more is answered 431.
        ahead: bytes a client may send before the response to its request is complete. They are kept, because only
            a reader that goes on reading sees the hang-up behind them; more closes the connection.
        unread: bytes of a body that the application has not taken; more closes the connection.
        keep_alive_timeout: seconds from the connection's start, or its last response, to the next complete head.
            The default is above the 5 s after which httpx drops an idle connection, so that the client drops first.
        write_timeout: seconds the kernel may take to accept one write; then the client counts as gone.
        linger: seconds that a connection closed by us goes on reading, so that a client still sending can read
            the response instead of a reset.
        grace: seconds that running requests may go on after the shutdown began.
        farewell: seconds they then have to say that they end, before every connection is reset. More than an engine
            that does not answer and a client that does not read can take together.
    """

    connections: int = 512
    head: int = 64 * KIB
    ahead: int = 64 * KIB
    unread: int = 1 * MIB
    keep_alive_timeout: float = 10.0
    write_timeout: float = 20.0
    linger: float = 2.0
    grace: float = 10.0
    farewell: float = 8.0
