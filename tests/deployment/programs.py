"""Programs of the packages of the extra `test` that have binaries."""

import platform
import sys
from pathlib import Path

import pytest


def packaged(name: str) -> str:
    """Return the path of a program beside the interpreter. Skips the test on platforms without its package."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(f"there is no package of {name} for this platform")
    return str(Path(sys.executable).with_name(name))
