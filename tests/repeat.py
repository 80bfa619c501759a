"""Tests that search for rare failures, and their repetitions."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet

TIMES = int(os.environ.get("LLAMA_GATEWAY_TEST_REPEAT", "1"))

repeated = pytest.mark.repeated
"""Marks the tests whose length depends on `TIMES`."""
thorough = pytest.mark.thorough
"""Marks the tests that take long. `pytest` leaves them out, `.ci/run` runs them."""


def first(count: int, values: Iterable[Any]) -> list[ParameterSet]:
    """Return values as parameters of tests, of which only so many run without `-m thorough`."""
    return [pytest.param(value, marks=() if at < count else thorough) for at, value in enumerate(values)]
