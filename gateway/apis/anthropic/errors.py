"""Errors in Anthropic's shape, with its types and statuses."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NotRequired, TypeAlias

import orjson

from gateway.apis.answers.shapes import JsonObject
from gateway.middleware.errors import CONTEXT_EXCEEDED, FIRST_SERVER_ERROR, RETRY, Problem
from gateway.middleware.request_id import current_request_id

OVERLOADED = 529
"""Anthropic's status for a server without room. Its clients retry it, after `retry-after` if that is present."""
_QUEUE_FULL, _UNAVAILABLE = "queue_full", 503

ErrorType: TypeAlias = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "timeout_error",
    "api_error",
    "overloaded_error",
]

_TYPES: Mapping[int, ErrorType] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}


class ErrorDetails(JsonObject):
    """Details of a failure for programs."""

    error_code: str


class ApiError(JsonObject):
    """The type and the explanation of a failure, and its cause where it has a code."""

    type: ErrorType
    message: str
    details: NotRequired[ErrorDetails]


class AnthropicError(JsonObject):
    """The error of a failed request, also as the last event of a failed stream."""

    type: Literal["error"]
    error: ApiError
    request_id: str | None


def adapt_problem(problem: Problem) -> Problem:
    """Return a problem with Anthropic's status, and with its words for a prompt that is too long.

    A full queue, and every wait that a retry may spare, is overload.
    """
    if problem.code == CONTEXT_EXCEEDED and problem.figures:
        return replace(problem, message=_too_long(problem.figures))
    retried = problem.headers.get("x-should-retry") == RETRY["x-should-retry"]
    overloaded = problem.code == _QUEUE_FULL or (problem.status == _UNAVAILABLE and retried)
    return replace(problem, status=OVERLOADED) if overloaded else problem


def _too_long(figures: Mapping[str, int]) -> str:
    """Return the words by which coding clients know that they have to shorten the conversation."""
    return f"prompt is too long: {figures['n_prompt_tokens']} tokens > {figures['n_ctx'] - 1} maximum"


def error_event(problem: Problem) -> AnthropicError:
    """Return the error for an adapted problem."""
    other: ErrorType = "api_error" if problem.status >= FIRST_SERVER_ERROR else "invalid_request_error"
    error: ApiError = {"type": _TYPES.get(problem.status, other), "message": problem.placed_message}
    if problem.code is not None:
        error["details"] = {"error_code": problem.code}
    return {"type": "error", "error": error, "request_id": current_request_id.get()}


def encode_error(problem: Problem) -> bytes:
    """Return `{"type": "error", "error": {...}, "request_id": ...}`."""
    return orjson.dumps(error_event(problem))
