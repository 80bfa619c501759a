"""Backends of the tests of the cluster's parts, which run on asyncio in Ray."""

from tests.backends import on_each_backend  # noqa: F401 - a fixture
