"""One log format for both processes, on standard error. A line is a message and fields, which `extra` gives."""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, log_format: str, current_request: Callable[[], str | None] = lambda: None) -> None:
    """Send every logger of this process to standard error, and nowhere else.

    Args:
        level: the least severe level shown, by Python's names in any case.
        log_format: `text` for people, `json` for one object a line.
        current_request: gives the id of the request that the caller serves, or None. A line whose `extra` has no
            `request_id` gets this one.
    """

    def name_request(record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = current_request()
        return True

    handler = logging.StreamHandler()
    handler.addFilter(name_request)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO engine.client request cancelled request_id=… freed=12`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback follows on lines of its own."""
        fields = "".join(f" {name}={_plain(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, the fields, and `exception` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of ASCII."""
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


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD and value is not None}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str:
    """The value as one word, quoted where it would not be one."""
    text = str(value)
    return text if text and text.isprintable() and not set(' "=') & set(text) else json.dumps(text)


def _one_line(message: str) -> str:
    """What a client sent must not be able to forge a line of its own."""
    return message.replace("\r", "\\r").replace("\n", "\\n")
