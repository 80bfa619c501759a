"""Validation of nested values one by one, so that an error names the exact place."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from engine import RequestError
from gateway.apis.fields.base import Fields
from gateway.middleware.faults import INVALID, MISSING, WRONG_TYPE, first_fault


class Nested(Fields):
    """An object inside a field, read by `read_nested`."""


_Nested = TypeVar("_Nested", bound=Nested)


def read_nested(model: type[_Nested], value: object, place: str) -> _Nested:
    """Return the value as a `model`. Raises `RequestError` with the place of the first fault, `messages[0].content`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        path, code, reason = first_fault(error, model)
        raise refusal(f"{place}.{path}" if path else place, reason, code) from error


def read_kind(kinds: Mapping[str, type[_Nested]], value: object, place: str, *, discriminator: str = "type") -> _Nested:
    """Return an object as one of several models, which its field `discriminator` names. Raises `RequestError`."""
    if not isinstance(value, dict):
        raise refusal(place, "should be an object", WRONG_TYPE)
    kind = value.get(discriminator)
    if not isinstance(kind, str) or kind not in kinds:
        named = f"{place}.{discriminator}"
        if kind is None:
            raise refusal(named, "Field required", MISSING)
        raise refusal(named, f"should be one of {', '.join(kinds)}", INVALID if isinstance(kind, str) else WRONG_TYPE)
    return read_nested(kinds[kind], value, place)


def missing(name: str, reason: str) -> ValidationError:
    """Return the error for an object without a field that its other fields require. A validator of it raises this."""
    fault = InitErrorDetails(type=PydanticCustomError("missing", reason), loc=(name,), input=None)
    return ValidationError.from_exception_data("", [fault])


def check_one_given(fields: Fields, first: str, second: str) -> None:
    """Check that one of two fields is given. Raises `RequestError`."""
    given = fields.model_fields_set & {first, second}
    if not given:
        raise RequestError(f"One of {first} and {second} should be given.", code=MISSING, param=first)
    if len(given) > 1:
        raise refusal(second, f"cannot be combined with {first}")


def refusal(place: str, reason: str, code: str = INVALID) -> RequestError:
    """Return the error for one place in a request."""
    return RequestError(f"{place}: {reason}", code=code, param=place)
