"""One cluster for all its tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from tests.cluster.cluster import Cluster, running_cluster
from tests.models import model_path
from tests.postgres import programs, serving_postgres

SETTINGS: dict[str, object] = {
    "model": str(model_path()),
    "replicas": 2,
    "slots": 4,
    "queue-limit": 4,
    "context": 16_384,
    "threads": 1,
    "step-target-ms": 20,
    "speculation": "off",
    "grace": 1,
    "chat-template": "chatml",
}
"""Settings of the cluster: two replicas, each with four requests that run and four that wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip these tests, and no others, where Ray is not installed."""
    if find_spec("ray") is None:
        for item in (item for item in items if item.get_closest_marker("cluster")):
            item.add_marker(pytest.mark.skip(reason='Ray is not installed: pip install -e ".[ray]"'))


@pytest.fixture(scope="session")
def store() -> Iterator[str | None]:
    """Yield the URL of a database for stored conversations, or None without PostgreSQL."""
    with ExitStack() as stack:
        found = programs()
        yield None if found is None else stack.enter_context(serving_postgres(found))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, store: str | None) -> Iterator[Cluster]:
    log = tmp_path_factory.mktemp("cluster") / "log"
    if store is not None:
        SETTINGS["responses-store"] = store
    with running_cluster(log, **SETTINGS) as running:
        yield running
