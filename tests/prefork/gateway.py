"""The program in a forked process. What it starts is forked, too."""

import socket
import sys

from gateway.program import main as run_program
from tests.prefork.client import ForkServer, forked_children
from tests.prefork.server import CONTROL


def main() -> int:
    """Run the program on the arguments of the process, and return its exit code."""
    with socket.socket(fileno=CONTROL) as control, forked_children(ForkServer(control)):
        return run_program(sys.argv[1:])
