"""Entry points. They handle signals during the imports of the program, which take most of its start."""

import signal
import sys
from types import FrameType


def main() -> int:
    """Run the program and return its exit code."""
    return _run(sys.argv[1:])


def llama_server() -> int:
    """Run the program with llama-server's command line and return its exit code."""
    return _run(["serve", "--like", "llama-server", *sys.argv[1:]])


def _run(arguments: list[str]) -> int:
    """Run the program. Ctrl-C ends it as it ends other programs, without a traceback."""
    if arguments[:1] == ["serve"] and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _not_yet)
    try:
        from gateway.program import main as run_program  # noqa: PLC0415

        return run_program(arguments)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        raise  # not reached, unless SIGINT is blocked


def _not_yet(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: there is nothing to reload before the server runs. Unlike an ignored signal, no child inherits it."""


if __name__ == "__main__":
    sys.exit(main())
