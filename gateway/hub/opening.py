"""The hub and the cache that the environment names: `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME`, `HF_HUB_CACHE`."""

from pathlib import Path

from huggingface_hub import constants

from gateway.hub.cache import HubCache
from gateway.hub.client import HubClient
from gateway.hub.source import HubSource


def hub_cache() -> HubCache:
    """Return the cache."""
    return HubCache(Path(constants.HF_HUB_CACHE))


def hub_source(*, offline: bool) -> HubSource:
    """Return the source of models; `offline` takes only those on this machine."""
    return HubSource(HubClient(), hub_cache(), offline=offline)
