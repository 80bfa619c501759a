"""Log of both processes, on standard error: the format of its lines, and the thread that writes them.

A line has a message, and fields from `extra`.
"""

import json
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

MAX_WAITING = 4 * 2**20
"""Bytes of lines that wait to be written, beyond one line of any size."""
FLUSH_SECONDS = 1.0
"""Maximum wait at the end of the process for lines to be written."""
LOST = "lines of the log are lost, because they could not be written"
"""Message of the line that follows a gap. Its field `lines` is the number of lines."""

current_model: ContextVar[str | None] = ContextVar("model", default=None)
"""Name of the model whose engine the current task serves or uses; None without one."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, log_format: str, fields: Mapping[str, Callable[[], str | None]] = {}) -> None:
    """Send every logger of this process to standard error only.

    Args:
        level: Minimum level, by Python's names in upper or lower case.
        log_format: `text` for people, `json` for one object per line.
        fields: Fields of every line that does not set them itself, such as the id of the request that the calling
            task serves. Each is called in that task and returns the value, or None for a line without the field.
    """

    def add_fields(record: logging.LogRecord) -> bool:
        for name, current in fields.items():
            if not hasattr(record, name):
                setattr(record, name, current())
        return True

    handler = logging.NullHandler() if sys.__stderr__ is None else BackgroundHandler(sys.__stderr__.fileno())
    handler.addFilter(add_fields)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


class BackgroundHandler(logging.Handler):
    """Writes lines in a thread, so that a reader who stops reading the log holds up no other thread.

    Beyond `MAX_WAITING` bytes, lines are dropped until all others are written. The next line says how many were lost.
    """

    def __init__(self, descriptor: int) -> None:
        """Create the handler and start its thread.

        Args:
            descriptor: File descriptor to write to. It stays open.
        """
        super().__init__()
        self._descriptor = descriptor
        self._waiting: deque[tuple[bytes, int]] = deque()  # a line, and the number of lines lost if it is
        self._size = 0
        self._lost = 0
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line. Never waits for the reader of the log."""
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - as every handler of `logging` does
            self.handleError(record)
            return
        with self._changed:
            if self._waiting and (self._lost or self._size >= MAX_WAITING):
                self._lost += 1
            else:
                self._add(line, 1)

    @override
    def flush(self) -> None:
        """Wait until all lines are written, for at most `FLUSH_SECONDS`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, FLUSH_SECONDS)

    @override
    def close(self) -> None:
        """End the thread after the lines that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()

    def _run(self) -> None:
        while (line := self._next()) is not None:
            try:
                _write(self._descriptor, line)
            except OSError:
                self._end_line(written=False)
            else:
                self._end_line(written=True)

    def _next(self) -> bytes | None:
        """Wait for the oldest line and return it, or None once the handler is closed. The line stays in the queue."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return self._waiting[0][0] if self._waiting else None

    def _end_line(self, *, written: bool) -> None:
        with self._changed:
            line, loss = self._waiting.popleft()
            self._size -= len(line)
            if not written:
                self._lost += loss
            elif self._lost and not self._waiting:
                self._add(self._line(_loss_record(self._lost)), self._lost)
                self._lost = 0
            self._changed.notify_all()

    def _add(self, line: bytes, loss: int) -> None:
        self._waiting.append((line, loss))
        self._size += len(line)
        self._changed.notify_all()

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")


class TextFormatter(logging.Formatter):
    """Lines such as `2026-01-31T12:00:00.000Z INFO engine.client request cancelled request_id=… freed=12`.

    A traceback follows on its own lines, each indented, so that none of them looks like a line of the log.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_plain(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}{fields}"
        return f"{line}\n{_indented(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `message`, the fields, and `exception` if there is one.

    The line is ASCII only.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _loss_record(lines: int) -> logging.LogRecord:
    values = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "lines": lines}
    return logging.makeLogRecord({**values, "msg": LOST})


def _write(descriptor: int, line: bytes) -> None:
    """Write a whole line.

    Raises:
        OSError: It cannot be written.
    """
    rest = memoryview(line)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process has made the file non-blocking
            select.select([], [descriptor], [])


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what `extra` added to a record. Names that begin with an underscore are those of other packages."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _STANDARD and not name.startswith("_") and value is not None
    }


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str:
    """Return the value as one word, quoted if it has spaces or special characters."""
    text = str(value)
    return text if text and text.isprintable() and not set(' "=') & set(text) else json.dumps(text)


def _one_line(message: str) -> str:
    """Escape control characters, so that text from a client can neither forge a line nor control a terminal."""
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


def _indented(trace: str) -> str:
    return "\n".join(f"  {_one_line(line)}" for line in trace.splitlines())
