"""Repetitions of the tests that search for rare failures.

The README's command does few of them, because a newcomer waits for it. `.ci/run` does eight times as many.
"""

import os

import pytest

TIMES = int(os.environ.get("LLAMA_GATEWAY_TEST_REPEAT", "1"))

repeated = pytest.mark.repeated
"""Marks the tests whose length depends on `TIMES`; `-m repeated` selects them."""
