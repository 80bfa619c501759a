"""Log lines in both formats, and the thread that writes them."""

import fcntl
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from engine import logs
from engine.logs import BackgroundHandler, JsonFormatter, TextFormatter, configure

LINE = "x" * 100_000
"""Longer than a pipe."""


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
def test_log_lines_have_the_ids_of_the_current_request_and_its_trace(capfd: pytest.CaptureFixture[str]) -> None:
    configure("info", "json", {"request_id": lambda: "req_now", "trace_id": lambda: "trace_now"})
    logging.getLogger("a").info("from the context")
    logging.getLogger("a").info("from extra", extra={"request_id": "req_own"})
    logging.getLogger("a").debug("not shown")
    logging.getLogger().handlers[0].flush()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["message"], line["request_id"], line["trace_id"]) for line in lines] == [
        ("from the context", "req_now", "trace_now"),
        ("from extra", "req_own", "trace_now"),
    ]


@pytest.mark.usefixtures("root_logger")
def test_the_log_level_is_the_configured_one(capfd: pytest.CaptureFixture[str]) -> None:
    configure("debug", "text")
    logging.getLogger("a").debug("shown")
    logging.getLogger().handlers[0].flush()
    assert capfd.readouterr().err.endswith("DEBUG a shown\n")


@pytest.mark.usefixtures("root_logger")
def test_a_process_without_standard_error_has_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stderr__", None)
    configure("info", "text")
    assert [type(handler) for handler in logging.getLogger().handlers] == [logging.NullHandler]


class Pipe:
    """A handler that writes to a pipe."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.handler = BackgroundHandler(self.writer)
        self.handler.setFormatter(JsonFormatter())

    def log(self, message: str, times: int = 1) -> None:
        for _ in range(times):
            self.handler.handle(record(message))

    def read_until(self, message: str) -> list[dict[str, Any]]:
        """Read lines up to one with this message."""
        lines: list[dict[str, Any]] = []
        with os.fdopen(os.dup(self.reader)) as file:
            while not lines or lines[-1]["message"] != message:
                lines.append(json.loads(file.readline()))
        return lines

    def close(self) -> None:
        self.handler.close()
        with suppress(OSError):
            os.close(self.reader)
        self.handler.flush()
        os.close(self.writer)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def losses(lines: list[dict[str, Any]]) -> list[int]:
    return [line["lines"] for line in lines if "are lost" in line["message"]]


def test_a_reader_that_stops_holds_up_no_thread_and_lost_lines_are_counted(pipe: Pipe) -> None:
    sent = 2 * logs.MAX_WAITING // len(LINE)
    pipe.log("first")
    pipe.log(LINE, times=sent)  # returns, though the pipe is full
    lines = pipe.read_until(logs.LOST)
    kept = [line["message"] for line in lines].count(LINE)
    assert lines[0]["message"] == "first"
    assert logs.MAX_WAITING <= kept * len(LINE) <= logs.MAX_WAITING + 2 * len(LINE)
    assert losses(lines) == [sent - kept]

    pipe.log("last")
    assert len(pipe.read_until("last")) == 1


def test_lines_that_cannot_be_written_are_counted(pipe: Pipe) -> None:
    os.close(pipe.reader)
    pipe.log("lost", times=3)
    pipe.handler.flush()
    pipe.reader, writer = os.pipe()
    os.dup2(writer, pipe.writer)
    os.close(writer)
    pipe.log("written")
    assert losses(pipe.read_until(logs.LOST)) == [3]


def test_a_pipe_that_does_not_block_gets_whole_lines(pipe: Pipe) -> None:
    fcntl.fcntl(pipe.writer, fcntl.F_SETFL, os.O_NONBLOCK)
    pipe.log(LINE, times=3)
    pipe.log("last")
    assert [line["message"] for line in pipe.read_until("last")] == [LINE, LINE, LINE, "last"]


def test_the_end_does_not_wait_for_a_reader_that_stopped(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FLUSH_SECONDS", 0.01)
    pipe.log(LINE)
    pipe.handler.flush()  # returns, though the pipe is full


def test_a_closed_handler_writes_the_lines_that_wait(pipe: Pipe) -> None:
    pipe.log(LINE)
    pipe.log("last")
    pipe.handler.close()
    assert [line["message"] for line in pipe.read_until("last")] == [LINE, "last"]


def test_a_line_that_cannot_be_formatted_stops_nothing(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe.handler.handle(record("%d", "no number"))
    pipe.log("last")
    assert len(pipe.read_until("last")) == 1
    assert "TypeError" in capsys.readouterr().err
