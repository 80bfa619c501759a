"""Style and types: the checks of CI are part of the one test command."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "check",
    ["ruff check --quiet", "ruff format --check --quiet", "mypy --no-error-summary"],
    ids=["lint", "format", "types"],
)
def test_lint_format_and_types_are_clean(check: str) -> None:
    run = subprocess.run([sys.executable, "-m", *check.split()], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
