"""The cache of the hub that the environment names: `HF_HOME`, `HF_HUB_CACHE`."""

from pathlib import Path

from huggingface_hub import constants

from gateway.hub.cache import HubCache


def hub_cache() -> HubCache:
    """Return the cache."""
    return HubCache(Path(constants.HF_HUB_CACHE))
