"""llama.cpp's log, as lines of Python's logging."""

import ctypes
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import llama_cpp

logger = logging.getLogger("llama.cpp")

_CONTINUED = 5
_LEVELS = {0: logging.INFO, 1: 5, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
"""From `enum ggml_log_level` (ggml.h): none, debug, info, warn, error. Its info is hundreds of lines for each load."""


class _Line(threading.local):
    """The line a thread is writing: llama.cpp may end it in a later call, and may write from threads of its own."""

    level = logging.INFO
    text = ""
    kept: list[str] | None = None
    keep_from = logging.ERROR

    def end(self) -> None:
        text, self.text = self.text.strip(" .\n"), ""  # a progress bar is dots
        if not text:
            return
        if self.kept is not None and self.level >= self.keep_from:
            self.kept.append(text)
        else:
            logger.log(self.level, "%s", text)


_line = _Line()


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _receive(level: int, text: bytes, _data: ctypes.c_void_p) -> None:
    if level != _CONTINUED:
        _line.end()
        _line.level = _LEVELS.get(level, logging.INFO)
    if not logger.isEnabledFor(_line.level) and _line.level < _line.keep_from:
        return
    _line.text += text.decode(errors="replace")
    if _line.text.endswith("\n"):
        _line.end()


def route_log() -> None:
    """Send llama.cpp's log to this module's logger, for the whole process. Repeatable."""
    llama_cpp.llama_log_set(_receive, ctypes.c_void_p(0))


@contextmanager
def keep_complaints(level: int) -> Iterator[list[str]]:
    """Keep this thread's lines of `level` and above out of the log, and give them instead."""
    complaints: list[str] = []
    _line.kept, _line.keep_from = complaints, level
    try:
        yield complaints
    finally:
        _line.end()
        _line.kept, _line.keep_from = None, logging.ERROR


def first_cause(complaints: list[str]) -> str:
    """The first complaint, which later ones repeat in wider terms, without the names of C functions."""
    if not complaints:
        return "llama.cpp does not say why"
    return complaints[0].split(": ", 1)[-1].removeprefix("error loading model: ")
