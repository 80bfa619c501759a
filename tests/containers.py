"""Programs as the first process of a container, to which the kernel gives no signal that it does not handle."""

import subprocess
from functools import cache

import pytest

_COMMANDS = (
    ["unshare", "--pid", "--fork"],
    ["unshare", "--user", "--map-root-user", "--pid", "--fork"],  # for users other than root
)


def container() -> list[str]:
    """Return a command that runs another one as a first process. Skips the test where there is none."""
    if (command := _command()) is None:
        pytest.skip("this system lets no process have a namespace of processes")
    return command


@cache
def _command() -> list[str] | None:
    return next((command for command in _COMMANDS if _works(command)), None)


def _works(command: list[str]) -> bool:
    try:
        run = subprocess.run([*command, "true"], capture_output=True, check=False, timeout=60)
    except OSError:
        return False
    return run.returncode == 0
