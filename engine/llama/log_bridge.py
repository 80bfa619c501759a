"""Forwards llama.cpp's log to Python's logging."""

import ctypes
import logging
import threading
from typing import NamedTuple

import llama_cpp

logger = logging.getLogger("llama.cpp")

ALL_LEVELS = 0
"""Level from which every line is collected."""
_CONTINUED = 5
_LEVELS = {0: logging.INFO, 1: 5, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
"""From `enum ggml_log_level` (ggml.h): none, debug, info, warn, error. Its info is hundreds of lines for each load."""


class LogLine(NamedTuple):
    """One line of llama.cpp's log."""

    level: int
    """One of Python's levels."""
    text: str
    """The message, without a line break."""


class _Line(threading.local):
    """Unfinished line of one thread. llama.cpp may finish it in a later call, and may log from its own threads."""

    level = logging.INFO
    text = ""
    captured: list[LogLine] | None = None
    capture_from = logging.ERROR
    hide_from = logging.ERROR

    def end(self) -> None:
        text, self.text = self.text.strip(" .\n"), ""  # a progress bar is dots
        if not text:
            return
        captured = self.captured is not None and self.level >= self.capture_from
        if self.captured is not None and captured:
            self.captured.append(LogLine(self.level, text))
        if not captured or self.level < self.hide_from:
            logger.log(self.level, "%s", text)


_line = _Line()


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _receive(level: int, text: bytes, _data: ctypes.c_void_p) -> None:
    if level != _CONTINUED:
        _line.end()
        _line.level = _LEVELS.get(level, logging.INFO)
    if not logger.isEnabledFor(_line.level) and _line.level < _line.capture_from:
        return
    _line.text += text.decode(errors="replace")
    if _line.text.endswith("\n"):
        _line.end()


def route_log() -> None:
    """Send llama.cpp's log to this module's logger, for the whole process. Repeatable."""
    llama_cpp.llama_log_set(_receive, ctypes.c_void_p(0))


class LogCapture:
    """Collects this thread's lines of `level` and above, inside the context, in a list.

    Those of `hide_from` and above are kept out of the log; without it, all of them.
    """

    def __init__(self, level: int, *, hide_from: int | None = None) -> None:
        self._level = level
        self._hide_from = level if hide_from is None else hide_from

    def __enter__(self) -> list[LogLine]:
        line, lines = _line, list[LogLine]()
        line.captured, line.capture_from, line.hide_from = lines, self._level, self._hide_from
        return lines

    def __exit__(self, *_: object) -> None:
        line = _line
        if line.text:
            line.end()
        line.captured, line.capture_from = None, logging.ERROR


def first_error(lines: list[LogLine]) -> str:
    """Return the first error without the names of C functions. Later errors repeat it in general terms."""
    for line in lines:
        if line.level >= logging.ERROR:
            return line.text.split(": ", 1)[-1].removeprefix("error loading model: ")
    return "llama.cpp does not say why"
