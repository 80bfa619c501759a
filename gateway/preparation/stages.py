"""The stages of preparation as pure functions, for any process."""

from json import JSONDecodeError
from typing import Any, NamedTuple

from pydantic import ValidationError

from engine import RequestError
from gateway.apis.endpoint import AnyEndpoint
from gateway.apis.fields.read import read_body
from gateway.middleware.errors import problem_for


class Prepared(NamedTuple):
    """Result of the first stage."""

    value: Any
    """Result of `Endpoint.prepare`."""
    unknown: tuple[str, ...]
    """Unknown fields of the body, which had no effect."""


def prepare(endpoint: AnyEndpoint, raw: bytes) -> Prepared:
    """Parse and validate a body, and prepare it for the endpoint. Raises `RequestError`."""
    try:
        read = read_body(raw, endpoint.body)
        return Prepared(endpoint.prepare(read.body), read.unknown)
    except (ValidationError, JSONDecodeError) as error:
        problem = problem_for(error)
        raise RequestError(problem.message, code=problem.code, param=problem.param) from error
