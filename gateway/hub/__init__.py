"""Models from the Hugging Face hub: names, download, and the files on this machine."""

from gateway.hub.errors import HubError
from gateway.hub.fetching import fetch
from gateway.hub.reference import HubReference

__all__ = ["HubError", "HubReference", "fetch"]
