"""Blocking reader and writer of messages on the pipes of the engine process."""

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
        """Wait for messages and return them; an empty list means that the gateway has closed the pipe."""
        while data := os.read(self._fd, _READ):
            if messages := list(self._decoder.feed(data)):
                return messages
        return []


class MessageWriter:
    """Writes complete messages to a file descriptor, in the order of `write`.

    `run` has its own thread, so that a step waits neither for the encoding nor for the reader.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._messages: queue.SimpleQueue[FromEngine | None] = queue.SimpleQueue()
        self._ended = threading.Event()

    def write(self, message: FromEngine) -> None:
        """Queue a message. Thread-safe; does not wait."""
        self._messages.put(message)

    def run(self) -> None:
        """Write queued messages until `close`.

        Raises:
            BrokenPipeError: The gateway has closed the pipe.
        """
        try:
            while (message := self._messages.get()) is not None:
                frame = memoryview(encode(message))
                while frame:
                    frame = frame[os.write(self._fd, frame) :]
        finally:
            self._ended.set()

    def close(self, timeout: float) -> None:
        """End `run` after all queued messages. Waits for its end, at most `timeout` seconds."""
        self._messages.put(None)
        self._ended.wait(timeout)
