"""Errors of `/generate`."""

import orjson

from gateway.middleware.errors import Problem, error_object


def encode_error(problem: Problem) -> bytes:
    """Return `{"success": false, "error": {...}}`."""
    return orjson.dumps({"success": False, "error": error_object(problem)})
