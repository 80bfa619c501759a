"""Listening sockets."""

import errno
import ipaddress
import os
import socket

BACKLOG = 65535
"""Clients that the kernel keeps until they are accepted. The system reduces it to its own limit (`somaxconn`).

Beyond it a client's first packet is dropped, and sent again only after 1 s, then 2 s, then 4 s.
"""
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of `host`, with the same port for all. May wait for the resolver.

    Args:
        host: A name or an address. Addresses that this machine does not have are skipped if it has another of them.
        port: 0 chooses a free port.

    Returns:
        The listening sockets, one for each address.

    Raises:
        OSError: This machine has no address of `host`, or one of them is in use.
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
    """Close all sockets."""
    for sock in sockets:
        sock.close()


def reason(error: OSError) -> str:
    """Return the reason for a failure to listen, without the address that Python adds."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def url(sock: socket.socket) -> str:
    """Return the URL at which clients reach a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if sock.family is socket.AF_INET6 else f"http://{host}:{port}"


def is_local(sock: socket.socket) -> bool:
    """Return True if only programs of this machine can reach a listening socket."""
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return True
    return ipaddress.ip_address(sock.getsockname()[0]).is_loopback
