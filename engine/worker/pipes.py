"""Blocking reader and writer of messages on the pipes of the engine process."""

import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

from engine.protocol.codec import Decoder, FrameTooLongError, encode
from engine.protocol.messages import Answered, Detokenized, FromEngine, Inspected, Message, Step, Tokenized

_READ = 1 << 16
_MOST_ANSWERS = 4
"""Answers to queries, or parts of them, that wait to be written."""


class MessageReader:
    """Reads messages from a file descriptor. For one thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._decoder = Decoder()

    def read(self) -> list[Message]:
        """Wait for messages and return them; an empty list means that the gateway has closed the pipe."""
        while data := os.read(self._fd, _READ):
            if messages := self._decoder.feed(data):
                return messages
        return []


class MessageWriter:
    """Writes complete messages to a file descriptor: each kind in the order of `write`, and answers to queries last.

    The news of a step are written at once by its thread if they are short and the pipe has room: the wake-up of another
    thread would cost more. `run` has its own thread for all else, so that no step waits for the reader.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._messages: deque[FromEngine] = deque()
        self._answers: deque[FromEngine] = deque()
        self._writing = False
        self._closing = False
        self._lock = threading.Lock()
        self._waiting = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._ended = threading.Event()
        self._pipe = select.poll()
        self._pipe.register(fd, select.POLLOUT)

    def write(self, message: FromEngine) -> None:
        """Queue a message. Thread-safe. Waits only with a part of a text, while answers before it are not written.

        Otherwise the parts of long answers would fill the memory, and delay the events of requests. All other answers
        may be those of the thread that reads cancels.
        """
        with self._lock:
            if isinstance(message, Answered) and not isinstance(message.answer, Inspected):
                if isinstance(message.answer, Tokenized | Detokenized):
                    self._room.wait_for(lambda: len(self._answers) < _MOST_ANSWERS or self._closing)
                self._answers.append(message)
            elif self._writing or self._messages or not (isinstance(message, Step) and self._pass_on(message)):
                self._messages.append(message)
            else:
                return
            self._waiting.notify()

    def run(self) -> None:
        """Write queued messages until `close`.

        Raises:
            BrokenPipeError: The gateway has closed the pipe.
        """
        try:
            while (message := self._next()) is not None:
                for frame in _frames(message):
                    self._write(memoryview(frame))
        finally:
            self._ended.set()

    def close(self, timeout: float) -> None:
        """End `run` after all queued messages. Waits for its end, at most `timeout` seconds."""
        with self._lock:
            self._closing = True
            self._waiting.notify()
            self._room.notify_all()
        self._ended.wait(timeout)

    def _pass_on(self, message: FromEngine) -> bool:
        """Write a message without a wait. Returns False if the pipe has no room for it or is closed, or if it is long.

        Up to `PIPE_BUF` bytes are written as a whole or not at all.
        """
        try:
            frame = encode(message)
            return len(frame) <= select.PIPE_BUF and os.write(self._fd, frame) > 0
        except (BlockingIOError, BrokenPipeError, FrameTooLongError):
            return False

    def _write(self, frame: memoryview) -> None:
        while frame:
            self._pipe.poll()
            with suppress(BlockingIOError):  # it has room, but not for a whole part
                frame = frame[os.write(self._fd, frame) :]

    def _next(self) -> FromEngine | None:
        """Wait for the next message and remove it; None at the end."""
        with self._lock:
            self._writing = False
            self._waiting.wait_for(lambda: self._messages or self._answers or self._closing)
            self._writing = bool(self._messages or self._answers)
            if self._messages:
                return self._messages.popleft()
            if not self._answers:
                return None
            self._room.notify()
            return self._answers.popleft()


def _frames(message: FromEngine) -> Iterator[bytes]:
    """Yield the frames of a message: one, or several of a step whose events are too long for one."""
    try:
        frame = encode(message)
    except FrameTooLongError:
        if not isinstance(message, Step) or len(message.events) == 1:
            raise
        half = len(message.events) // 2
        for events in (message.events[:half], message.events[half:]):
            yield from _frames(Step(events, message.metrics))
    else:
        yield frame
