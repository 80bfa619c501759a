"""Style and types: the checks of CI are part of the one test command."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repeat import thorough

ROOT = Path(__file__).parents[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "check",
    [
        "ruff check --quiet",
        "ruff format --check --quiet",
        "mypy --no-error-summary -p engine -p gateway",
        pytest.param("mypy --no-error-summary", marks=thorough),  # with the tests: more than twice as long
        pytest.param(  # finds what only Linux has
            "mypy --no-error-summary --platform darwin --no-warn-unreachable --follow-imports silent"
            " --cache-dir .mypy_cache/darwin -p gateway",
            marks=thorough,
        ),
    ],
    ids=["lint", "format", "types", "types of the tests", "types on macOS"],
)
def test_lint_format_and_types_are_clean(check: str) -> None:
    run = subprocess.run([sys.executable, "-m", *check.split()], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
