"""Listening sockets."""

import errno
import os
import socket

BACKLOG = 1024
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address that `host` stands for, all with one port; 0 takes a free one.

    Of several addresses, those that this machine does not have are left out. Raises `OSError` if none is left, or
    one is taken. May wait for the resolver.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "this is no host name") from error
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in dict.fromkeys((entry[0], str(entry[4][0])) for entry in found):
        try:
            sock = socket.create_server((address, port), family=family, backlog=BACKLOG)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                close(sockets)
                raise
            missing = error
        else:
            port = sock.getsockname()[1]
            sockets.append(sock)
    if missing is not None and not sockets:
        raise missing
    return sockets


def close(sockets: list[socket.socket]) -> None:
    """Close them all."""
    for sock in sockets:
        sock.close()


def reason(error: OSError) -> str:
    """Why listening failed, without the address that Python adds."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def url(sock: socket.socket) -> str:
    """Where a client finds a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if sock.family is socket.AF_INET6 else f"http://{host}:{port}"
