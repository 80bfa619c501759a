"""Listening Unix sockets, and the clients on them."""

import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from typing_extensions import override

BACKLOG = 4096
"""Clients that the kernel keeps until they are accepted. Beyond it, a client's connect waits or fails."""
_CREDENTIALS = struct.Struct("iII")
"""Process, user and group of a peer, as Linux has them."""


class UnixListener(socket.socket):
    """Listening Unix socket. Its file is removed when it is closed."""

    def __init__(self, path: Path) -> None:
        """Listen. Only the user of this process can connect, unless the mode of the file is changed.

        The file of a server that did not remove it, because it was killed, is replaced.

        Raises:
            OSError: A server listens there, or the path cannot be used.
        """
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._file: tuple[Path, int] | None = None
        try:
            with _locked(path):
                self._listen(path)
        except OSError:
            self.close()
            raise

    def _listen(self, path: Path) -> None:
        _remove_stale(path)
        mask = os.umask(0o177)
        try:
            self.bind(str(path))
        finally:
            os.umask(mask)
        self._file = path, path.stat().st_ino
        self.listen(BACKLOG)

    @override
    def close(self) -> None:
        """Remove the file, unless it is another server's by now or its folder refuses it, and close the socket."""
        if self._file is not None:
            (path, inode), self._file = self._file, None
            if _inode(path) == inode:
                with suppress(OSError):  # the next server replaces it
                    path.unlink()
        super().close()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other server starts at a path: its socket looks like that of a dead one until it listens."""
    lock = Path(f"{path}.lock")
    while True:
        with lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _inode(lock) == os.fstat(file.fileno()).st_ino:  # else the other one has removed it
                try:
                    yield
                finally:
                    lock.unlink()
                return


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _remove_stale(path: Path) -> None:
    """Remove the file of a socket on which no process listens.

    Raises:
        OSError: A process listens there, or it is the path of another kind of file.
    """
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise OSError("it exists and is not a socket")  # `bind` says that the address is in use
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError("it is a symbolic link to a file that does not exist") from None
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except BlockingIOError as error:  # its backlog is full
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from error
        else:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def peer_of(sock: socket.socket) -> tuple[str, int]:
    """Return the user and the process of the peer on a Unix socket, in place of an IP address and a port.

    The name of the user is such as `unix:1000`, so that the clients of different users share the engine fairly.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return "unix", 0
    process, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return f"unix:{user}", process
