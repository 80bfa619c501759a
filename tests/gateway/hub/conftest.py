"""A hub on this machine, and an empty cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.hub.cache import HubCache
from gateway.hub.client import HubClient
from gateway.hub.source import HubSource
from tests.gateway.hub.local_hub import LocalHub, local_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with local_hub() as hub:
        hub.files = {"some-Q4_K_M.gguf": bytes(range(256)) * 5000}
        yield hub


@pytest.fixture
def cache(tmp_path: Path) -> HubCache:
    return HubCache(tmp_path / "hub")


@pytest.fixture
def source(hub: LocalHub, cache: HubCache) -> HubSource:
    return HubSource(HubClient(hub.endpoint), cache, offline=False)
