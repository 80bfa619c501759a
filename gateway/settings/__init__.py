"""Settings of the server: names, types, bounds, defaults and help texts."""

from gateway.settings.settings import Settings

__all__ = ["Settings"]
