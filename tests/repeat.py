"""Tests that search for rare failures, and their repetitions."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any
from zlib import crc32

import pytest
from _pytest.mark import ParameterSet

TIMES = int(os.environ.get("LLAMA_GATEWAY_TEST_REPEAT", "1"))

repeated = pytest.mark.repeated
"""Marks the tests whose length depends on `TIMES`."""
thorough = pytest.mark.thorough
"""Marks the tests that take long. `pytest` leaves them out, `.ci/run` runs them."""
every_case = pytest.mark.every_case
"""Marks the tests of which each case always runs: of what the program promises first."""
CASES = 4
"""Cases of each other test that run if all tests do, without `-m thorough`."""


def first(count: int, values: Iterable[Any]) -> list[ParameterSet]:
    """Return values as parameters of tests, of which only so many run without `-m thorough`."""
    return [pytest.param(value, marks=() if at < count else thorough) for at, value in enumerate(values)]


def further_cases(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the cases of each test beyond `CASES`. Checksums of their names choose, which favour no parameter."""
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if not any(map(item.get_closest_marker, ("thorough", "every_case"))):
            cases[item.nodeid.partition("[")[0]].append(item)
    ordered = (sorted(of_test, key=lambda item: crc32(item.nodeid.encode())) for of_test in cases.values())
    return chain.from_iterable(of_test[CASES:] for of_test in ordered)


def in_part(node_id: str, part: str) -> bool:
    """Return whether a test is in a part of all tests, such as 2/5, the second of five. Its name alone decides."""
    number, _, parts = part.partition("/")
    return crc32(node_id.encode()) % int(parts) == int(number) - 1
