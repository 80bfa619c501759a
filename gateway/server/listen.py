"""Listening sockets."""

import errno
import ipaddress
import os
import socket
import ssl
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from gateway.server.unix import UnixListener

BACKLOG = 65535
"""Clients that the kernel keeps until they are accepted. The system reduces it to its own limit (`somaxconn`).

Beyond it a client's first packet is dropped, and sent again only after 1 s, then 2 s, then 4 s.
"""
DEFER_ACCEPT = 10
"""Seconds for which Linux keeps a client that sends nothing, about as long as an idle connection may stay.

So a client costs the server nothing before its first bytes, and thousands of silent ones delay no other client.
"""
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


class ListenError(Exception):
    """An address or a path cannot be listened on. The text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Listening sockets of the server."""

    all: list[socket.socket]
    """Those of the whole server."""
    metrics: list[socket.socket]
    """Those of the port for metrics alone."""
    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the TLS context for a new connection; unset to serve without TLS."""


def listen_all(address: tuple[str, int] | None, unix_socket: Path | None) -> list[socket.socket]:
    """Listen on hosts, separated by commas, and a port, on a Unix socket, or on both. May wait for the resolver.

    Raises:
        ListenError: One of them cannot be listened on.
    """
    sockets: list[socket.socket] = []
    hosts, port = ("", 0) if address is None else address
    try:
        for host in map(str.strip, hosts.split(",") if hosts else ()):
            where = f"{host} port {port}"
            sockets += listen(host, port, {sock.getsockname()[0] for sock in sockets})
            port = sockets[0].getsockname()[1]
        if unix_socket is not None:
            where = str(unix_socket)
            sockets.append(UnixListener(unix_socket))
    except OSError as error:
        close(sockets)
        raise ListenError(f"cannot listen on {where}: {reason(error)}") from error
    return sockets


def listen(host: str, port: int, others: Collection[str] = ()) -> list[socket.socket]:
    """Listen on every address of `host`, with the same port for all. May wait for the resolver.

    Args:
        host: A name or an address. Addresses that this machine does not have are skipped if it has another of them.
        port: 0 chooses a free port.
        others: Addresses to leave out, because other sockets listen on them.

    Returns:
        The listening sockets, one for each address.

    Raises:
        OSError: This machine has no address of `host`, or one of them is in use.
    """
    return _on_every_address(host, port, others, _listener)


def reserve(host: str, port: int) -> list[socket.socket]:
    """Keep a port of `host` from all programs but those of this user that share it (SO_REUSEPORT). May wait.

    Linux lets only one program reserve it.

    Args:
        host: A name or an address.
        port: 0 chooses a free port.

    Returns:
        Sockets that do not listen, so that clients reach only the program that does. The first have its addresses.

    Raises:
        ListenError: The port cannot be listened on, or a program listens there or has reserved it.
    """
    sockets: list[socket.socket] = []
    try:
        sockets += _on_every_address(host, port, (), _reserved)
        for sock in tuple(sockets):
            if sys.platform == "linux":
                sockets.append(_lock(sock))
            _check_silence(sock)
    except OSError as error:
        close(sockets)
        raise ListenError(f"cannot listen on {host} port {port}: {reason(error)}") from error
    return sockets


def _on_every_address(
    host: str,
    port: int,
    others: Collection[str],
    create: Callable[[socket.AddressFamily, tuple[str, int]], socket.socket],
) -> list[socket.socket]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "this is no host name") from error
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in dict.fromkeys((entry[0], str(entry[4][0])) for entry in found):
        if address in others:
            continue
        try:
            sock = create(family, (address, port))
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


def _listener(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    sock = socket.create_server(address, family=family, backlog=BACKLOG)
    if hasattr(socket, "TCP_DEFER_ACCEPT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT)
    return sock


def _reserved(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family is socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _lock(sock: socket.socket) -> socket.socket:
    """Bind an abstract Unix socket that has the address in its name, so that this user can reserve it only once.

    Like the port, the name belongs to the network namespace, and the kernel frees it with the process.
    """
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind("\0llama-gateway {} port {}".format(*sock.getsockname()[:2]))
    except OSError:
        lock.close()
        raise
    return lock


def _check_silence(sock: socket.socket) -> None:
    """Check that no program listens where this socket is bound. Such a program may share its port.

    Raises:
        OSError: There is one.
    """
    with socket.socket(sock.family) as client:
        client.settimeout(1)
        if client.connect_ex(sock.getsockname()) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def close(sockets: list[socket.socket]) -> None:
    """Close all sockets."""
    for sock in sockets:
        sock.close()


def reason(error: OSError) -> str:
    """Return the reason for a failure to listen, without the address that Python adds."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)


def url(sock: socket.socket, *, secure: bool = False) -> str:
    """Return the URL at which clients reach a listening socket, for a Unix socket with its path.

    Args:
        sock: The listening socket.
        secure: The server has TLS, which Unix sockets never have.
    """
    if sock.family is socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if sock.family is socket.AF_INET6 else f"{scheme}://{host}:{port}"


def is_local(sock: socket.socket) -> bool:
    """Return True if only programs of this machine can reach a listening socket."""
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return True
    return ipaddress.ip_address(sock.getsockname()[0]).is_loopback
