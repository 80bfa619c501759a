"""The engine's ends of its two pipes: whole messages in and out, blocking."""

import os
import queue
import threading

from engine.protocol.codec import Decoder, encode
from engine.protocol.messages import FromEngine, Message

_READ = 1 << 16


class MessageReader:
    """Reads messages from a file descriptor. For one thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._decoder = Decoder()

    def read(self) -> list[Message]:
        """Waits for messages; an empty list says that the other side is gone."""
        while data := os.read(self._fd, _READ):
            if messages := list(self._decoder.feed(data)):
                return messages
        return []


class MessageWriter:
    """Writes messages to a file descriptor, each in one piece, in the order in which they were handed in.

    In a thread of its own, which runs `run`: a pass waits neither for the encoding nor for who reads.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._messages: queue.SimpleQueue[FromEngine | None] = queue.SimpleQueue()
        self._ended = threading.Event()

    def write(self, message: FromEngine) -> None:
        """Hand in a message, from any thread. Does not wait."""
        self._messages.put(message)

    def run(self) -> None:
        """Write until closed. Raises `BrokenPipeError` when the other side is gone."""
        try:
            while (message := self._messages.get()) is not None:
                frame = memoryview(encode(message))
                while frame:
                    frame = frame[os.write(self._fd, frame) :]
        finally:
            self._ended.set()

    def close(self, patience: float) -> None:
        """Let `run` end after what was handed in; waits for that, but no more than so many seconds."""
        self._messages.put(None)
        self._ended.wait(patience)
