"""Starlette's exception handlers. They encode a failure in the shape of the API that the request belongs to."""

from dataclasses import replace
from json import JSONDecodeError

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from engine.errors import EngineError
from gateway.middleware.caller import caller_of
from gateway.middleware.errors import RefusedError, problem_for, response_for


async def handle(request: Request, error: Exception) -> Response:
    """Return the response to a failed request. Starlette raises unexpected errors again, and the server logs them."""
    caller = caller_of(request.scope)
    problem = problem_for(error)
    if isinstance(error, HTTPException):  # of the router, which names neither the path nor the method
        message = f"This server has no endpoint {caller.exchange.method} {caller.exchange.path}."
        problem = replace(problem, message=message)
    problem = caller.conventions.adapt(problem)
    caller.exchange.error = problem.code or ""
    return response_for(problem, caller.conventions.encode_error)


EXCEPTION_HANDLERS = dict.fromkeys(
    (RefusedError, EngineError, ValidationError, JSONDecodeError, HTTPException, Exception), handle
)
"""Argument `exception_handlers` of `Starlette`."""
