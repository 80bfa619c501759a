"""Log lines in both formats."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from engine.logs import JsonFormatter, TextFormatter, configure


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "engine.client", "levelname": "INFO", "msg": message, "args": args, "created": 0.5, **extra}
    )


def test_a_log_record_as_a_line_of_text() -> None:
    line = TextFormatter().format(record("request %s", "cancelled", request_id="req_1", freed=12, ms=0.4))
    assert line == "1970-01-01T00:00:00.500Z INFO engine.client request cancelled request_id=req_1 freed=12 ms=0.4"


def test_a_log_record_as_a_line_of_json() -> None:
    line = JsonFormatter().format(record("request %s", "cancelled", request_id="req_1", freed=12))
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "INFO",
        "logger": "engine.client",
        "message": "request cancelled",
        "request_id": "req_1",
        "freed": 12,
    }


def test_text_from_a_client_cannot_forge_a_log_line() -> None:
    forged = record("a\nb\rc", reason='x y="1"\n2', empty="")
    assert TextFormatter().format(forged).endswith(r'a\nb\rc reason="x y=\"1\"\n2" empty=""')
    assert "\n" not in JsonFormatter().format(forged)


def test_a_field_without_a_value_is_left_out() -> None:
    assert TextFormatter().format(record("x", request_id=None)).endswith("engine.client x")
    assert "request_id" not in json.loads(JsonFormatter().format(record("x", request_id=None)))


def test_a_log_line_with_an_exception_ends_in_its_traceback() -> None:
    try:
        int("broken")
    except ValueError:
        failed = record("x", exc_info=sys.exc_info())
    assert TextFormatter().format(failed).splitlines()[-1].endswith("'broken'")
    assert json.loads(JsonFormatter().format(failed))["exception"].endswith("'broken'")


def test_a_traceback_cannot_forge_a_log_line() -> None:
    def fail() -> None:
        raise ValueError("x\n2026-01-01T00:00:00.000Z INFO gateway forged\x1b[2J")

    try:
        fail()
    except ValueError:
        failed = record("x", exc_info=sys.exc_info())
    first, *trace = TextFormatter().format(failed).splitlines()
    assert first.endswith(" x")
    assert all(line.startswith("  ") and line.isprintable() for line in trace)


@pytest.fixture
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("root_logger")
def test_log_lines_have_the_ids_of_the_current_request_and_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json", lambda: "req_now", lambda: "trace_now")
    logging.getLogger("a").info("from the context")
    logging.getLogger("a").info("from extra", extra={"request_id": "req_own"})
    logging.getLogger("a").debug("not shown")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["message"], line["request_id"], line["trace_id"]) for line in lines] == [
        ("from the context", "req_now", "trace_now"),
        ("from extra", "req_own", "trace_now"),
    ]


@pytest.mark.usefixtures("root_logger")
def test_the_log_level_is_the_configured_one(capsys: pytest.CaptureFixture[str]) -> None:
    configure("debug", "text")
    logging.getLogger("a").debug("shown")
    assert capsys.readouterr().err.endswith("DEBUG a shown\n")
