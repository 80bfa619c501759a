"""Log format of both processes, on standard error. A line has a message, and fields from `extra`."""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from typing_extensions import override

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(
    level: str,
    log_format: str,
    current_request: Callable[[], str | None] = lambda: None,
    current_trace: Callable[[], str | None] = lambda: None,
) -> None:
    """Send every logger of this process to standard error only.

    Args:
        level: Minimum level, by Python's names in upper or lower case.
        log_format: `text` for people, `json` for one object per line.
        current_request: Returns the id of the request that the calling task serves, or None. It is the default of
            the field `request_id`.
        current_trace: Returns the id of that request's trace, or None. It is the default of the field `trace_id`.
    """

    def name_request(record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = current_request()
        if not hasattr(record, "trace_id"):
            record.trace_id = current_trace()
        return True

    handler = logging.StreamHandler()
    handler.addFilter(name_request)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


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


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD and value is not None}


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
