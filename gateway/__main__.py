"""Entry points. They handle signals during the imports of the program, which take most of its start."""

import os
import signal
import sys
from types import FrameType

from gateway.signals import end_by, handle_termination


def main() -> int:
    """Run the program and return its exit code."""
    return _run(sys.argv[1:])


def llama_server() -> int:
    """Run the program with llama-server's command line and return its exit code."""
    return _run(["serve", "--like", "llama-server", *sys.argv[1:]])


def _run(arguments: list[str]) -> int:
    """Run the program. Ctrl-C ends it as it ends other programs, without a traceback."""
    _open_closed_streams()
    handle_termination()
    if arguments[:1] == ["serve"] and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _not_yet)
    try:
        from gateway.program import main as run_program  # noqa: PLC0415

        return run_program(arguments)
    except KeyboardInterrupt:
        end_by(signal.SIGINT)


def _open_closed_streams() -> None:
    """Open the null device as each standard stream that is closed. Another file would otherwise get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: PTH123, SIM115 - it is open as long as the program
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _not_yet(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: there is nothing to reload before the server runs. Unlike an ignored signal, no child inherits it."""


if __name__ == "__main__":
    sys.exit(main())
