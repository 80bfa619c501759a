"""Errors in llama-server's shape."""

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired

import orjson
from pydantic import Field

from gateway.apis.answers.shapes import Count, JsonObject
from gateway.middleware.errors import CONTEXT_EXCEEDED, FIRST_SERVER_ERROR, Problem

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
"""llama-server's names of the kinds of errors, by status."""


class LlamaServerError(JsonObject):
    """An error. One for a prompt that is too long has its number of tokens, as far as it is known, and the context."""

    code: Annotated[int, Field(description="The status.")]
    message: str
    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "rate_limit_error",
        "not_supported_error",
        "unavailable_error",
        "exceed_context_size_error",
        "server_error",
    ]
    param: Annotated[str | None, Field(description="Name of the invalid field.")]
    reason: Annotated[str | None, Field(description="A stable error code for programs.")]
    n_prompt_tokens: NotRequired[Count]
    n_ctx: NotRequired[Count]


class LlamaServerErrorAnswer(JsonObject):
    """The error of a failed request."""

    error: LlamaServerError


def encode_error(problem: Problem) -> bytes:
    """Return `{"error": {"code", "message", "type"}}`, with what this server knows besides."""
    kind = _TYPES.get(
        problem.status, "invalid_request_error" if problem.status < FIRST_SERVER_ERROR else "server_error"
    )
    error: dict[str, str | int | None] = {
        "code": problem.status,
        "message": problem.message,
        "type": kind,
        "param": problem.param,
        "reason": problem.code,
    }
    if problem.code == CONTEXT_EXCEEDED and problem.figures:
        error |= {"type": "exceed_context_size_error", "message": _too_long(problem.figures), **problem.figures}
    return orjson.dumps({"error": error})


def _too_long(figures: Mapping[str, int]) -> str:
    return (
        f"request ({figures['n_prompt_tokens']} tokens) exceeds the available context size "
        f"({figures['n_ctx']} tokens), try increasing it"
    )
