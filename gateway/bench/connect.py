"""Connecting to the server under test, with or without TLS."""

import os
import socket
import ssl

import anyio

from gateway.bench.target import Target


async def connect(target: Target) -> socket.socket:
    """Return a connected, non-blocking socket, after the TLS handshake if any.

    Tries each address of the host in turn. Waits for the resolver and for the server.

    Raises:
        OSError: no address can be connected.
    """
    failure = OSError(f"{target.host} has no address")
    for family, kind, protocol, _, address in await anyio.getaddrinfo(
        target.host, target.port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            return await _open(sock, address, target)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure


def describe(error: OSError) -> str:
    """Return the operating system's error message."""
    return error.strerror or str(error)


async def _open(sock: socket.socket, address: tuple[str, int], target: Target) -> socket.socket:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.connect(address)
    except BlockingIOError:
        await anyio.wait_writable(sock)
    if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, os.strerror(code))
    if target.tls is None:
        return sock
    secured = target.tls.wrap_socket(sock, server_hostname=target.host, do_handshake_on_connect=False)
    try:
        await _shake_hands(secured)
    except BaseException:
        secured.close()
        raise
    return secured


async def _shake_hands(sock: ssl.SSLSocket) -> None:
    while True:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            await anyio.wait_readable(sock)
        except ssl.SSLWantWriteError:
            await anyio.wait_writable(sock)
        else:
            return
