"""Errors of the hub."""

from engine import LoadError

MISSING = "model_not_found"
"""Code of the error of a model that the hub does not have."""


class HubError(LoadError):
    """A model cannot be had. The message is one line for the operator that says what to do."""
