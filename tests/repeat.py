"""Tests that search for rare failures, and their repetitions."""

import os

import pytest

TIMES = int(os.environ.get("LLAMA_GATEWAY_TEST_REPEAT", "1"))

repeated = pytest.mark.repeated
"""Marks the tests whose length depends on `TIMES`."""
thorough = pytest.mark.thorough
"""Marks the tests that take long. `pytest` leaves them out, `.ci/run` runs them."""
