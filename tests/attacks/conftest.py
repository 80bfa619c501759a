"""Fixtures of attacks."""

from collections.abc import Iterator
from threading import Thread

import pytest

from tests.program import serving_program


@pytest.fixture(scope="module")
def gateway() -> Iterator[tuple[int, int]]:
    """The port and the process id of a gateway."""
    with serving_program() as (process, port):
        assert process.stderr is not None
        Thread(target=process.stderr.read, daemon=True).start()  # waiting lines take memory
        yield port, process.pid
