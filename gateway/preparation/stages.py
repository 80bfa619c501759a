"""The stages of preparation as pure functions, for any process."""

from collections.abc import Callable
from json import JSONDecodeError
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from engine import RequestError
from gateway.apis.fields.read import read_body
from gateway.middleware.errors import problem_for, validation_problem

_Body = TypeVar("_Body", bound=BaseModel)


class Prepared(NamedTuple):
    """Result of the first stage."""

    value: Any
    """Result of `Endpoint.prepare`."""
    unknown: tuple[str, ...]
    """Unknown fields of the body, which had no effect."""


def prepare(model: type[_Body], convert: Callable[[_Body], object], raw: bytes) -> Prepared:
    """Parse and validate a body, and prepare it for its endpoint.

    Args:
        model: `Endpoint.body`.
        convert: `Endpoint.prepare`.
        raw: the body's bytes.

    Raises:
        RequestError: the body is invalid.
    """
    try:
        read = read_body(raw, model)
        return Prepared(convert(read.body), read.unknown)
    except (ValidationError, JSONDecodeError) as error:
        problem = validation_problem(error, model) if isinstance(error, ValidationError) else problem_for(error)
        raise RequestError(problem.message, code=problem.code, param=problem.param) from error
