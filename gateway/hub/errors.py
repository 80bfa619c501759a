"""Errors of the hub."""

from engine import LoadError


class HubError(LoadError):
    """A model cannot be had. The message is one line for the operator that says what to do."""
