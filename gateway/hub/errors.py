"""Errors of the hub."""


class HubError(Exception):
    """A model cannot be had. The text is one line for the operator that says what to do."""
