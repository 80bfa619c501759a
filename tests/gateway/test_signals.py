"""Ends of the process by a signal, also as the first process of a container."""

import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.containers import container

ENDED = """
import signal, sys
from gateway.signals import end_by

number = int(sys.argv[1])
signal.signal(number, signal.SIG_IGN)
end_by(number)
"""
"""Program that ends by the signal of its argument."""
HANDLED = """
import signal
from gateway.signals import handle_termination

signal.signal(signal.SIGTERM, signal.SIG_DFL)
handle_termination()
signal.raise_signal(signal.SIGTERM)
print("goes on")
"""


def code_of(program: str, *arguments: str, within: Sequence[str] = ()) -> int:
    """Return the exit code of a program, which may run within another one."""
    command = [*within, sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=False, timeout=60).returncode


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_ends_as_by_a_signal_that_is_not_handled(number: int) -> None:
    assert code_of(ENDED, str(number)) == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_process_of_a_container_ends_at_once(number: int) -> None:
    assert code_of(ENDED, str(number), within=container()) == 128 + number


def test_a_termination_ends_the_first_process_of_a_container_and_any_other() -> None:
    assert code_of(HANDLED, within=container()) == 128 + signal.SIGTERM
    assert code_of(HANDLED) == -signal.SIGTERM
