"""One cluster for all its tests."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec

import anyio
import pytest

from gateway.keys.key import Key, KeyLimits
from gateway.keys.secret import hash_of, new_secret
from gateway.keys.sql_store import SqlKeyStore
from gateway.storage.place import open_database
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
FREE, LIMITED = "free", "limited"
MOST_REQUESTS = 10
"""Requests at once of the limited key."""


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
def keys(store: str | None) -> Mapping[str, str]:
    """Return the secrets of two API keys by name: one without limits, and one with a limit, if there is a database."""
    secrets = {FREE: new_secret(), LIMITED: new_secret()}
    if store is not None:
        anyio.run(add_keys, store, secrets)
    return secrets


async def add_keys(url: str, secrets: Mapping[str, str]) -> None:
    """Store the keys, whose ids are their names."""
    keys = SqlKeyStore(open_database(url))
    await keys.create()
    for name, secret in secrets.items():
        limits = KeyLimits(concurrent_requests=MOST_REQUESTS) if name == LIMITED else KeyLimits()
        await keys.add(Key(id=name, name=name, limits=limits), hash_of(secret))
    await keys.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, store: str | None, keys: Mapping[str, str]) -> Iterator[Cluster]:
    log = tmp_path_factory.mktemp("cluster") / "log"
    if store is not None:
        SETTINGS.update({"responses-store": store, "keys": store})
    with running_cluster(log, keys[FREE], **SETTINGS) as running:
        yield running
