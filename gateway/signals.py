"""Ends of the process by a signal, also where it is the first process of a container.

The kernel drops a signal that the first process does not handle, even one that it sends itself.
"""

import os
import signal
from types import FrameType
from typing import NoReturn

_FIRST = 1


def end_by(number: int) -> NoReturn:
    """End the process at once, as a signal does that is not handled."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)  # the first process of a container, or one that blocks the signal


def handle_termination() -> None:
    """Let SIGTERM end the first process of a container until it is handled otherwise. Others end by it anyway."""
    if os.getpid() == _FIRST and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
