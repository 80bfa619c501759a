"""Backends of the tests of the HTTP server."""

from tests.backends import on_each_backend  # noqa: F401 - a fixture
