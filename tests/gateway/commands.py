"""Commands of the program, run in this process."""

import pytest

from gateway.program import main


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, the output and the remarks of a command."""
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = int(str(exit_.code))
    out, err = capsys.readouterr()
    return code, out, err
