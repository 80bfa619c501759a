"""Backends of asynchronous code, as parameters of the fixture `anyio_backend`."""

import pytest

from tests.repeat import thorough

EACH = ("trio", "asyncio")
"""Both, for tests of code that waits or cancels."""
TRIO_FIRST = ("trio", pytest.param("asyncio", marks=thorough))
"""asyncio only with `-m thorough`, for tests of code above that: what depends on the backend is below it."""
