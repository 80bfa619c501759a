"""Fixtures of a worker that serves, and of the gate before its passes."""

from collections.abc import Iterator

import pytest

from tests.engine.worker.worker_client import GUARD, Client, Gate


@pytest.fixture
def client() -> Iterator[Client]:
    started = Client().loaded()
    yield started
    started.runner.on_pass = lambda _plan: None
    started.worker.stop()
    assert started.closed.wait(GUARD), "the model was not freed"


@pytest.fixture
def gate(client: Client) -> Iterator[Gate]:
    gate = Gate(client.runner)
    yield gate
    gate.open()
