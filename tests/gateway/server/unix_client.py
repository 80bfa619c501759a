"""A client on a Unix socket that writes raw bytes."""

import socket
from pathlib import Path

from tests.gateway.server.sockets import Client


class UnixClient(Client):
    """A client socket without any protocol, connected to a file."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.connect(str(path))
        except OSError:
            self.sock.close()
            raise
        self.sock.setblocking(False)
        self._received = b""
