"""Errors in Ollama's shape."""

import orjson

from gateway.apis.answers.shapes import JsonObject
from gateway.middleware.errors import Problem


class OllamaError(JsonObject):
    """The error of a failed request, also as the last line of a failed stream."""

    error: str


def encode_error(problem: Problem) -> bytes:
    """Return `{"error": message}`."""
    failure: OllamaError = {"error": problem.placed_message}
    return orjson.dumps(failure)
