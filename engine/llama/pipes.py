"""The engine's ends of its two pipes: whole messages in and out, blocking."""

import os
import threading

from engine.link import wire

_READ = 1 << 16


class MessageReader:
    """Reads messages from a file descriptor. For one thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._decoder = wire.Decoder()

    def read(self) -> list[wire.Message]:
        """Waits for messages; an empty list says that the other side is gone."""
        while data := os.read(self._fd, _READ):
            if messages := list(self._decoder.feed(data)):
                return messages
        return []


class MessageWriter:
    """Writes messages to a file descriptor, each in one piece, from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def write(self, message: wire.FromEngine) -> None:
        """Waits while the pipe is full. Raises `BrokenPipeError` when the other side is gone."""
        frame = memoryview(wire.encode(message))
        with self._lock:
            while frame:
                frame = frame[os.write(self._fd, frame) :]
