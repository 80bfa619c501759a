"""llama.cpp's log, forwarded to Python's."""

import logging
import threading

import pytest

from engine.llama.log_bridge import LogCapture, LogLine, _receive, first_error

DEBUG, INFO, WARN, ERROR, CONTINUED = 1, 2, 3, 4, 5


@pytest.fixture(autouse=True)
def listening(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "llama.cpp")


def test_log_levels_map_to_those_of_python(caplog: pytest.LogCaptureFixture) -> None:
    for level in (DEBUG, INFO, WARN, ERROR):
        _receive(level, b"said\n", None)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG, logging.WARNING, logging.ERROR]


def test_a_line_may_come_in_parts(caplog: pytest.LogCaptureFixture) -> None:
    _receive(WARN, b"one ", None)
    _receive(CONTINUED, b"two ", None)
    _receive(CONTINUED, b"three\n", None)
    assert [(record.levelno, record.message) for record in caplog.records] == [(logging.WARNING, "one two three")]


def test_a_line_left_open_ends_where_the_next_begins(caplog: pytest.LogCaptureFixture) -> None:
    _receive(WARN, b"open", None)
    _receive(ERROR, b"next\n", None)
    assert caplog.messages == ["open", "next"]


def test_progress_bars_are_dropped_and_broken_text_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    _receive(INFO, b".....", None)
    _receive(CONTINUED, b"\n", None)
    _receive(WARN, b"\xff\n", None)
    assert caplog.messages == ["\N{REPLACEMENT CHARACTER}"]


def test_threads_do_not_mix_their_lines(caplog: pytest.LogCaptureFixture) -> None:
    _receive(WARN, b"here ", None)
    other = threading.Thread(target=_receive, args=(WARN, b"there\n", None))
    other.start()
    other.join()
    _receive(CONTINUED, b"again\n", None)
    assert caplog.messages == ["there", "here again"]


def test_captured_lines_are_kept_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with LogCapture(logging.ERROR) as errors:
        _receive(WARN, b"heard\n", None)
        _receive(ERROR, b"load: error loading model: kept\n", None)
        _receive(ERROR, b"open", None)
    _receive(ERROR, b"heard again\n", None)
    assert [line.text for line in errors] == ["load: error loading model: kept", "open"]
    assert caplog.messages == ["heard", "heard again"]
    assert first_error(errors) == "kept"
    assert first_error([LogLine(logging.WARNING, "a warning"), *errors]) == "kept"
    assert first_error([]) == "llama.cpp does not say why"
