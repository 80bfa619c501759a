"""Tests that search for rare failures, and their repetitions."""

import os
from collections.abc import Iterable
from typing import Any
from zlib import crc32

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


def in_part(node_id: str, part: str) -> bool:
    """Return whether a test is in a part of all tests, such as 2/4, the second of four. Its name alone decides."""
    number, _, parts = part.partition("/")
    return crc32(node_id.encode()) % int(parts) == int(number) - 1
