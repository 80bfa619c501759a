"""Health of the parts of a cluster, which Ray asks for."""


class UnhealthyError(Exception):
    """A replica cannot serve requests any more. Ray replaces it."""
