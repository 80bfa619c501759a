"""Models of the hub that are on this machine without a download."""

from gateway.hub.cache import HubCache


def cached_model(cache: HubCache, repository: str, name: str, content: bytes) -> None:
    """Put a file of a repository into a cache."""
    blob = cache.blob(repository, "digest")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(content)
    cache.link(repository, "commit", name, "digest")
